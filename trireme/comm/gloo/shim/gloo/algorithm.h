// LibTorch's wheel has Gloo inside libtorch_cpu, but none of its headers, and c10d's ProcessGroupGloo.hpp includes five
// of them. These files declare only the names in that header. Everything else of Gloo stays opaque, behind pointers
// that libtorch_cpu creates.
#pragma once
