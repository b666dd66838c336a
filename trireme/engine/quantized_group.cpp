#include "trireme/engine/quantized_group.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "trireme/model/initialize.h"
#include "trireme/model/layers.h"

namespace trireme::engine {

namespace {

/// Writes what this rank holds of each record of the group.
void fill_records(const GroupState& group,
                  const std::function<void(const model::ParameterSpec& p, uint8_t* record)>& write) {
  auto* master = static_cast<uint8_t*>(group.master.data_ptr());
  if (master == nullptr) return;  // this rank holds none
  std::memset(master, 0, static_cast<size_t>(group.held.size()));
  for (size_t i = 0; i < group.layout->tensors().size(); ++i) {
    const shard::FlatTensor& t = group.layout->tensors()[i];
    const int64_t begin = std::max(group.held.begin, t.offset), end = std::min(group.held.end, t.offset + t.numel);
    if (begin >= end) continue;
    const model::ParameterSpec& p = (*group.parameters)[i];
    if (end - begin == t.numel) {
      write(p, master + begin - group.held.begin);
      continue;
    }
    const at::Tensor record = at::zeros({t.numel}, at::kByte);
    auto* const bytes = record.data_ptr<uint8_t>();
    write(p, bytes);
    std::memcpy(master + begin - group.held.begin, bytes + begin - t.offset, static_cast<size_t>(end - begin));
  }
}

}  // namespace

void fill_quantized(const GroupState& group, const TakeWhole& take) {
  fill_records(group, [&](const model::ParameterSpec& p, uint8_t* record) {
    const std::vector<uint8_t> bytes = model::quantized_record(p, *take(p));
    if (!p.packed) {
      std::ranges::copy(bytes, record);
      return;
    }
    ops::BlockRecords blocks;
    blocks.add(p.quantized, bytes.data());
    model::write_packed(p, at::from_blob(record, {p.record_bytes()}, at::kByte), blocks.matrix());
  });
}

void fill_packed(const GroupState& group, const TakeMatrix& take) {
  fill_records(group, [&](const model::ParameterSpec& p, uint8_t* record) {
    model::write_packed(p, at::from_blob(record, {p.record_bytes()}, at::kByte), take(p));
  });
}

void initialize_records(const GroupState& group, uint64_t seed, at::ScalarType state) {
  if (group.storage->packed && group.storage->quantized == base::BlockFormat::none) {
    fill_packed(group, [&](const model::ParameterSpec& p) {
      const at::Tensor values = at::zeros(p.shape, state);
      if (state == at::kDouble)
        model::initialize_held(values.data_ptr<double>(), p, seed, 0, p.numel());
      else
        model::initialize_held(values.data_ptr<float>(), p, seed, 0, p.numel());
      return values.to(p.packed->dtype);
    });
    return;
  }
  const auto values = [seed](const model::ParameterSpec& p, int64_t begin, int64_t end, float* to) {
    model::ParameterSpec whole = p;
    whole.shape = p.whole_shape();
    whole.full_shape.clear();
    whole.pieces.clear();
    whole.split_dim = -1;
    model::initialize_held(to, whole, seed, begin, end);
  };
  fill_quantized(group, [&](const model::ParameterSpec& p) {
    return std::make_shared<const ops::Quantized>(model::quantize_values(p, values));
  });
}

}  // namespace trireme::engine
