// The calls of a decoder block on its communicators, in the order of decoder_block.cpp and decoder_block_backward.cpp.
#include <algorithm>

#include "trireme/model/block_values.h"
#include "trireme/model/decoder_block.h"

namespace trireme::model {
using namespace block;

void DecoderBlock::wide_norm_traffic(std::vector<TrafficRow>& rows, const BatchShape& shape, const Precision& p) const {
  if (has_wide_norms()) TensorTraffic(parallel_).sum(rows, p.state, 2 * local_rows(parallel_, shape).tokens);
}

std::vector<TrafficRow> DecoderBlock::traffic_of_recompute(const BatchShape& shape, const Precision& p,
                                                           const std::vector<int>& which) const {
  const auto wants = [&](int index) { return std::find(which.begin(), which.end(), index) != which.end(); };
  const TensorTraffic tp(parallel_);
  const int64_t boundary = local_rows(parallel_, shape).tokens * widths_.width;
  std::vector<TrafficRow> rows;
  if (wants(kQkv)) {
    tp.gather(rows, p.compute, boundary);
    wide_norm_traffic(rows, shape, p);
    attention_->share_traffic(rows, shape, p);
  }
  if (wants(kAttended)) attention_->forward_traffic(rows, shape, p);
  const auto reduce = [&](const Product& product) {
    magnitude_traffic(product, tp, rows, p);
    tp.reduce(rows, p.compute, boundary);
  };
  if (wants(kMid)) reduce(layout_.out);
  if (wants(kHidden)) tp.gather(rows, p.compute, boundary);
  if (keeps_mlp_out() && wants(kMlpOut)) reduce(layout_.down);
  return rows;
}

UnitTraffic DecoderBlock::traffic(const BatchShape& shape, const Precision& p) const {
  const TensorTraffic tp(parallel_);
  const int64_t boundary = local_rows(parallel_, shape).tokens * widths_.width;
  UnitTraffic u;
  u.recompute = traffic_of_recompute(shape, p, {kQkv, kAttended, kMid, kHidden, kMlpOut});
  u.forward = u.recompute;
  if (!keeps_mlp_out()) {
    magnitude_traffic(layout_.down, tp, u.forward, p);
    tp.reduce(u.forward, p.compute, boundary);
  }

  const auto shared_heads = [&](std::vector<TrafficRow>& rows) {
    const int64_t all_heads = 2 * config_.num_key_value_heads * widths_.head_dim;
    if (shares_heads()) tp.sum(rows, p.gradient(), all_heads * widths_.width);
    if (shares_heads() && config_.attention_bias) tp.sum(rows, p.state, all_heads);
  };
  const auto norms = [&](std::vector<TrafficRow>& rows) {
    if (sequence_parallel()) tp.sum(rows, p.state, num_norm_vectors() * widths_.width);
    if (has_head_norms() && !has_wide_norms()) tp.sum(rows, p.state, 2 * widths_.head_dim);
  };
  for (const bool whole : {true, false}) {
    std::vector<TrafficRow>& rows = whole ? u.backward : u.backward_input;
    for (const bool attention : {false, true}) {  // the MLP half first
      tp.gather(rows, p.compute, boundary);
      magnitude_traffic(attention ? layout_.out : layout_.down, tp, rows, p);
      if (attention) attention_->backward_traffic(rows, shape, p);
      if (attention) wide_norm_traffic(rows, shape, p);
      tp.reduce(rows, p.compute, boundary);
      const Product& column = attention ? layout_.qkv : layout_.up;
      if (whole || !column.adapters.empty()) tp.gather(rows, p.compute, boundary);
    }
  }
  const auto adapters = [&](std::vector<TrafficRow>& rows) {
    if (adapter_parts_.size() > 0) tp.sum(rows, p.state, adapter_parts_.size());
  };
  shared_heads(u.backward);
  adapters(u.backward);
  norms(u.backward);
  tp.gather(u.backward_weight, p.compute, boundary);
  tp.gather(u.backward_weight, p.compute, boundary);
  shared_heads(u.backward_weight);
  adapters(u.backward_weight);
  norms(u.backward_weight);
  return u;
}

}  // namespace trireme::model
