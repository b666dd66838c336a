// The head in generation: logits of some rows, without a loss.
#include <ATen/ATen.h>

#include "trireme/comm/communicator.h"
#include "trireme/model/head.h"
#include "trireme/model/head_values.h"
#include "trireme/ops/ops.h"

namespace trireme::model {
namespace {

/// Slots behind those of the adapter.
enum GenerationSlot { kRows = HeadWork::adapter_bias + 1, kAllParts, kAllRows };

}  // namespace

UnitValues HeadUnit::generation_values(const GenerationShape& shape, const Precision& p) const {
  const int64_t rows = shape.logit_rows, width = config_.hidden_size,
                part = parameters_[static_cast<size_t>(product_.weight)].shape[0];
  UnitValues v;
  v.output = {"logits", {rows, config_.vocab_size}, p.compute};
  v.forward_work[HeadWork::normed] = {"normed", {rows, width}, p.compute};
  v.forward_work[HeadWork::rstd] = {"rstd", {rows}, p.state};
  v.forward_work[HeadWork::mean] = {"mean", {rows}, p.state};
  v.forward_work[kRows] = {"rows", {rows, width}, p.compute};
  if (sequence_parallel()) v.forward_work[kAllRows] = {"rows of all ranks", {shape.rows, width}, p.compute};
  if (parallel_.tp_size > 1) {
    v.forward_work[HeadWork::logits] = {"this rank's logits", {rows, part}, p.compute};
    v.forward_work[kAllParts] = {"all ranks' logits", {parallel_.tp_size, rows, part}, p.compute};
  } else if (part > config_.vocab_size) {  // a table with padding
    v.forward_work[HeadWork::logits] = {"logits and padding", {rows, part}, p.compute};
  }
  if (has_adapter()) {
    UnitValues adapter;
    declare_adapter(adapter, rows, rows, p);
    for (size_t slot = 0; slot < adapter.forward_work.size(); ++slot)
      if (!adapter.forward_work[static_cast<int>(slot)].name.empty())
        v.forward_work[static_cast<int>(slot)] = adapter.forward_work[static_cast<int>(slot)];
  }
  return v;
}

std::vector<TrafficRow> HeadUnit::generation_traffic(const GenerationShape& shape, const Precision& p) const {
  if (parallel_.tp_size == 1) return {};
  const int64_t part = parameters_[static_cast<size_t>(product_.weight)].shape[0];
  std::vector<TrafficRow> rows;
  TensorTraffic(parallel_).gather(rows, p.compute, shape.rows * config_.hidden_size);
  rows.push_back(
      {comm::UnitAxis::tp, comm::Operation::all_gather, p.compute, parallel_.tp_size * shape.logit_rows * part});
  return rows;
}

void HeadUnit::write_logits(UnitTensors& t) const {
  at::Tensor rows = t.work[kRows], normed = t.work[HeadWork::normed];
  at::Tensor all_rows = t.input;
  if (const TensorParallel tp(parallel_, t.ranks); tp.sequence()) {
    all_rows = t.work[kAllRows];
    tp.own_rows(all_rows).copy_(t.input);
    tp.gather_in_place(all_rows);
  }
  at::index_select_out(rows, all_rows, 0, t.new_tokens->logit_rows);
  norm_forward(norm_, normed, {norm_.centered() ? t.work[HeadWork::mean] : at::Tensor(), t.work[HeadWork::rstd]}, rows,
               t.parameters, config_.norm_eps);
  divide_logits(normed);
  const auto slot = static_cast<size_t>(HeadWork::logits);
  const bool apart = slot < t.work.size() && t.work[slot].defined();
  const at::Tensor own = apart ? t.work[slot] : t.output;
  product_forward(product_, t, own, normed);
  adapters_forward(product_, t, parallel_, adapter_buffers(t, 0), own, normed);
  adapters_bias(product_, t, adapter_buffers(t, 0), own);
  if (parallel_.tp_size > 1) {
    const at::Tensor& all = t.work[kAllParts];
    const int64_t size = parallel_.tp_size, part = own.size(1);
    t.ranks[comm::UnitAxis::tp]
        ->all_gather(all, own, std::vector<int64_t>(static_cast<size_t>(size), own.numel()))
        ->wait();
    for (int64_t r = 0, first = 0; r < size && first < config_.vocab_size; ++r, first += part) {
      const int64_t count = std::min(part, config_.vocab_size - first);
      t.output.narrow(1, first, count).copy_(all[r].narrow(1, 0, count));
    }
  } else if (apart) {
    t.output.copy_(own.narrow(1, 0, config_.vocab_size));
  }
  if (config_.logit_softcap > 0) ops::softcap_forward(t.output, config_.logit_softcap);
}

}  // namespace trireme::model
