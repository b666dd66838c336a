// The wheel of LibTorch holds Gloo inside libtorch_cpu but ships none of its headers, while c10d's
// ProcessGroupGloo.hpp includes five of them. These declare just what that header names; everything else about
// Gloo stays opaque behind pointers that libtorch_cpu itself creates.
#pragma once
