// Row kernels of ops/loss/cross_entropy.cpp and cross_entropy_shard.cpp, chosen for the processor at run time.
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
  double softcap;  ///< 0: no cap, and cap' is 1. Otherwise logits are capped, and cap' = 1 - (logit / softcap)^2
  bool gradient;
};
void softmax_loss_rows(const SoftmaxLoss& arguments, int64_t first, int64_t last);

/// The gradient of a row's logits, divided by the temperature, is softmax * p - target * onehot(target) - uniform.
struct RowWeights {
  double softmax, target, uniform;
};

/// Part of the vocabulary. If one rank holds all of it, a row's bits are those of softmax_loss_rows.
struct VocabularyShard {
  Storage dtype;
  int64_t width;           ///< n: columns of logits, padding included
  int64_t num_valid;       ///< columns in the vocabulary; padding follows them
  int64_t first;           ///< id of column 0
  void* logits;            ///< [rows, n]; overwritten by shard_gradient_rows only
  const int64_t* targets;  ///< [rows], global ids or kNotSupervised; not read by shard_max_rows
  void* row_max;           ///< [rows] of the wide type, as the next two; written by shard_max_rows
  void* sum_exp;           ///< written by shard_sum_rows
  void* target_logit;      ///< written by shard_sum_rows
  void* logit_sum;         ///< likewise, of the valid columns; null: not wanted
  const RowWeights* weights;  ///< [rows], read by shard_gradient_rows; null: {scale, scale, 0} in every row
  double scale;
  double softcap;      ///< read by shard_gradient_rows, as in SoftmaxLoss
  double temperature;  ///< what all three read are logits / temperature, in the wide type; 1 costs nothing
};
void shard_max_rows(const VocabularyShard& arguments, int64_t first, int64_t last);
void shard_sum_rows(const VocabularyShard& arguments, int64_t first, int64_t last);
void shard_gradient_rows(const VocabularyShard& arguments, int64_t first, int64_t last);

}  // namespace trireme::ops
