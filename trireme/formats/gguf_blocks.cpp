#include "trireme/formats/gguf_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/formats/gguf/blocks.h"
#include "trireme/ops/blocks/gguf.h"

namespace trireme::formats {
namespace {

constexpr int64_t kBlocksAtOnce = 1 << 15;  ///< quantized: 4 MiB of values

}  // namespace

GgufBlockSource::GgufBlockSource(const TensorSource& source, const std::set<std::string>& matrices,
                                 base::BlockFormat format)
    : source_(source), format_(format), tensors_(source.tensors()) {
  const int64_t values = base::traits_of(format).values;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    TensorSpec& tensor = tensors_[i];
    in_blocks_.push_back(matrices.contains(tensor.name));
    if (!in_blocks_.back()) continue;
    ++num_matrices_;
    num_copied_ += source.blocks_of(i) == format;
    tensor.dtype = Dtype::u8;
    tensor.shape.back() = tensor.shape.back() / values * ops::gguf_block_bytes(format);
  }
}

void GgufBlockSource::read(size_t tensor, int64_t begin, int64_t end, void* data, Dtype dtype) const {
  if (!in_blocks_[tensor]) return source_.read(tensor, begin, end, data, dtype);
  const int64_t block_bytes = ops::gguf_block_bytes(format_), values = base::traits_of(format_).values;
  check_invariant(dtype == Dtype::u8 && begin % block_bytes == 0 && end % block_bytes == 0,
                  "whole blocks are written, as they are");
  const int64_t last = end / block_bytes;
  auto* to = static_cast<std::byte*>(data);
  if (source_.blocks_of(tensor) == format_)
    return source_.read_blocks(tensor, begin / block_bytes * values, last * values, to);
  std::vector<float> numbers;
  for (int64_t block = begin / block_bytes; block < last;) {
    const int64_t count = std::min(kBlocksAtOnce, last - block);
    numbers.resize(static_cast<size_t>(count * values));
    source_.read(tensor, block * values, (block + count) * values, numbers.data(), Dtype::f32);
    if (!quantize(format_, numbers.data(), to, count))
      throw CheckpointError(
          fmt::format("tensor '{}' holds values that are not finite or too large for {}: write --dtype bfloat16",
                      tensors_[tensor].name, base::traits_of(format_).name),
          "", tensors_[tensor].name);
    to += count * block_bytes;
    block += count;
  }
}

std::string with_gguf(const std::string& config_json, base::BlockFormat format) {
  nlohmann::ordered_json config = base::parse_json<nlohmann::ordered_json>(config_json);
  const base::BlockFormatTraits& traits = base::traits_of(format);
  config["quantization_config"] = {{"quant_method", traits.method}, {"quant_type", traits.code}};
  return config.dump(2) + "\n";
}

}  // namespace trireme::formats
