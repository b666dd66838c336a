// The chunks of rows in which the head computes; private to head*.cpp.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>

#include "trireme/model/head.h"
#include "trireme/model/head_values.h"

namespace trireme::model {

/// Some rows of a micro-batch: its part of the head's values.
struct HeadUnit::Chunk {
  int64_t first, rows, all;
  at::Tensor x, targets, logits;
  at::Tensor row_max, to_add, sum_exp, target_logit, logit_sum;  ///< `to_add`: the last three
  bool is_first() const { return first == 0; }
  bool is_last() const { return first + rows == all; }
};

template <class Body>
void HeadUnit::for_chunks(const UnitTensors& t, int64_t all, const Body& body) const {
  const bool keeps_all = objective_.has_inputs();
  const at::Tensor &normed = t.work[HeadWork::normed], &logits = t.work[HeadWork::logits],
                   &sums = t.work[HeadWork::sums], targets = keeps_all ? t.work[HeadWork::supervised][1] : t.targets;
  const int64_t most = logits.size(0), each = sums_of_row();
  for (int64_t first = 0; first < all; first += most) {
    const int64_t rows = std::min(most, all - first);
    const at::Tensor mine = sums.narrow(0, keeps_all ? each * first : 0, each * rows);
    Chunk chunk{.first = first,
                .rows = rows,
                .all = all,
                .x = normed.narrow(0, first, rows),
                .targets = targets.narrow(0, first, rows),
                .logits = logits.narrow(0, 0, rows),
                .row_max = mine.narrow(0, 0, rows),
                .to_add = mine.narrow(0, rows, (each - 1) * rows),
                .sum_exp = mine.narrow(0, rows, rows),
                .target_logit = mine.narrow(0, 2 * rows, rows)};
    if (each == 4) chunk.logit_sum = mine.narrow(0, 3 * rows, rows);
    body(chunk);
  }
}

}  // namespace trireme::model
