// Row kernels of ops/cross_entropy_shard.cpp, chosen for the processor at run time. A row's bits are those of
// softmax_loss_rows (cross_entropy_kernels.h) where one rank holds the whole vocabulary.
#pragma once

#include <cstdint>

#include "trireme/ops/storage.h"

namespace trireme::ops {

struct VocabularyShard {
  Storage dtype;
  int64_t width;           ///< n: columns of logits, padding included
  int64_t num_valid;       ///< the first of them, that are in the vocabulary
  int64_t first;           ///< id of column 0
  void* logits;            ///< [rows, n]; overwritten by shard_gradient_rows only
  const int64_t* targets;  ///< [rows], global ids or kNotSupervised; not read by shard_max_rows
  void* row_max;           ///< [rows] of the wide type, as the next two; written by shard_max_rows
  void* sum_exp;           ///< written by shard_sum_rows
  void* target_logit;      ///< written by shard_sum_rows
  double scale;
  double softcap;  ///< read by shard_gradient_rows, as in SoftmaxLoss
};
void shard_max_rows(const VocabularyShard& arguments, int64_t first, int64_t last);
void shard_sum_rows(const VocabularyShard& arguments, int64_t first, int64_t last);
void shard_gradient_rows(const VocabularyShard& arguments, int64_t first, int64_t last);

}  // namespace trireme::ops
