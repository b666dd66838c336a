// The limits' loops for any processor, in 16-byte vectors.
#include <cstring>

#include "trireme/machine/loops-inl.h"

namespace trireme::machine {
namespace {

void copy_by_library(void* to, const void* from, int64_t bytes) { std::memcpy(to, from, static_cast<size_t>(bytes)); }

}  // namespace

const LimitsKernel kLimitsPortable{.name = "portable",
                                   .multiply_add = {kMultiplyAdd<double, 16, 12>, kMultiplyAdd<float, 16, 12>, {}},
                                   .copy_past_caches = nullptr,
                                   .copy = copy_by_library,
                                   .update = update<16>,
                                   .read = read<16>};

}  // namespace trireme::machine
