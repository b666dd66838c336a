// Row kernels of the activations in ops/elementwise/elementwise.cpp, chosen for the processor at run time. Pointers are
// to whole tensors; rows first..last-1 are computed.
#pragma once

#include <cstdint>

#include "trireme/ops/storage.h"

namespace trireme::ops {

enum class Activation { kSilu, kGelu };  ///< kGelu: the approximation by tanh

struct GatedArguments {
  Activation activation;
  Storage dtype;
  int64_t width;  ///< F: half of a row of gate_up
  void* gate_up;  ///< backward: its gradient on return
  void* y;  ///< backward: dy on entry
  bool past_caches = false;  ///< forward: as ops/simd/past_caches.h says
};
void gated_forward_rows(const GatedArguments& arguments, int64_t first, int64_t last);
void gated_backward_rows(const GatedArguments& arguments, int64_t first, int64_t last);

struct GeluArguments {
  Storage dtype;
  int64_t width;
  void* x;  ///< backward: its gradient on return
  void* y;  ///< backward: dy on entry
  bool past_caches = false;  ///< forward: as ops/simd/past_caches.h says
};
void gelu_forward_rows(const GeluArguments& arguments, int64_t first, int64_t last);
void gelu_backward_rows(const GeluArguments& arguments, int64_t first, int64_t last);

struct SoftcapArguments {
  Storage dtype;
  int64_t width;
  void* x;  ///< overwritten by cap tanh(x / cap)
  double cap;
};
void softcap_rows(const SoftcapArguments& arguments, int64_t first, int64_t last);

}  // namespace trireme::ops
