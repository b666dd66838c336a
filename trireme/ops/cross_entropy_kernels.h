// Row kernels of ops/cross_entropy.cpp, chosen for the processor at run time.
#pragma once

#include <cstdint>

#include "trireme/ops/storage.h"

namespace trireme::ops {

constexpr int64_t kNotSupervised = -100;

struct SoftmaxLoss {
  Storage dtype;
  int64_t vocabulary;
  void* logits;            ///< [rows, V]; with `gradient` overwritten by scale (softmax - onehot(target)) cap'
  const int64_t* targets;  ///< [rows], each in [0, V) or kNotSupervised
  double* losses;          ///< [rows]
  double scale;
  double softcap;  ///< 0, or logits are capped by it: cap' = 1 - (logit / softcap)^2, else 1
  bool gradient;
};
void softmax_loss_rows(const SoftmaxLoss& arguments, int64_t first, int64_t last);

struct AccumulateArguments {
  Storage dtype;
  int64_t width;
  void* sum;  ///< wide type
  const void* x;
};
/// sum += x
void accumulate_rows(const AccumulateArguments& arguments, int64_t first, int64_t last);

}  // namespace trireme::ops
