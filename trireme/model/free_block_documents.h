// DocumentSpan: tokens that see each other in an encoder: all sequences, or one document.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "trireme/model/unit.h"

namespace trireme::model {

struct DocumentSpan {
  int64_t sequence;        ///< of each row of the batch
  int64_t first = 0;       ///< row of the batch; `batch` rows from there on
  int64_t batch = 1;
  int64_t begin = 0, tokens = 0;  ///< in the sequence

  /// The span's part [batch, tokens, W] of x [B*S, W].
  at::Tensor rows(const at::Tensor& x) const {
    const auto at = x.storage_offset() + (first * sequence + begin) * x.stride(0);
    return x.as_strided({batch, tokens, x.size(1)}, {sequence * x.stride(0), x.stride(0), 1}, at);
  }
  /// The span's part of lse [B,H,S].
  at::Tensor of_lse(const at::Tensor& lse) const { return lse.narrow(0, first, batch).narrow(2, begin, tokens); }
};

/// `starts` int64 [B*S] as in ops::attention_forward; undefined: each sequence is one document.
inline std::vector<DocumentSpan> document_spans(const BatchShape& shape, const at::Tensor& starts) {
  if (!starts.defined()) return {{.sequence = shape.sequence, .batch = shape.micro_batch, .tokens = shape.sequence}};
  std::vector<DocumentSpan> spans;
  const int64_t* start = starts.data_ptr<int64_t>();
  for (int64_t b = 0; b < shape.micro_batch; ++b)
    for (int64_t i = 0, begin = 0; i < shape.sequence; ++i) {
      const bool ends = i + 1 == shape.sequence || start[b * shape.sequence + i + 1] != start[b * shape.sequence + i];
      if (!ends) continue;
      spans.push_back({.sequence = shape.sequence, .first = b, .begin = begin, .tokens = i + 1 - begin});
      begin = i + 1;
    }
  return spans;
}

}  // namespace trireme::model
