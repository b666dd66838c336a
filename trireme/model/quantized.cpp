#include "trireme/model/quantized.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/model/tensor_names.h"

namespace trireme::model {
namespace {

[[noreturn]] void refuse(const ModelConfig& config, const std::string& why) {
  throw UsageError(fmt::format("{} {}: {}", config.quantized_by, base::traits_of(config.quantized).name, why));
}

// Of "model.layers.0.mlp.up_proj" the number of the block; nothing for modules outside the blocks.
bool is_in_a_block(const ModelConfig& config, const std::string& module) {
  return module.starts_with(tensor_names(config.architecture).block.prefix);
}

void check_quantized_head(const ModelConfig& c, const Precision& precision) {
  if (c.quantized_head == base::BlockFormat::none) return;
  const auto refuse_head = [&](const std::string& why) {
    throw UsageError(
        fmt::format("quantize_head {}: {}; leave quantize_head out", base::traits_of(c.quantized_head).name, why));
  };
  if (c.is_classifier() || c.bidirectional) refuse_head("models that classify texts have no such head");
  if (c.is_free()) refuse_head("a Free Transformer is kept with all its bits");
  if (precision.on_gpu) refuse_head("weights in blocks are multiplied on processors only");
}

}  // namespace

void check_quantized(const ModelConfig& c, const Precision& precision, const Adapters& adapters) {
  check_quantized_head(c, precision);
  if (c.quantized == base::BlockFormat::none) return;
  if (c.is_classifier() || c.bidirectional)
    refuse(c, "models that classify texts are trained whole, with all their bits; leave " + c.quantized_by + " out");
  if (c.is_free())
    refuse(c, "a Free Transformer is trained whole, with all its bits; leave " + c.quantized_by + " out");
  if (tensor_names(c.architecture).block.in_out)
    refuse(c,
           fmt::format("models of type {} store their matrices transposed, which is not built for blocks of {} bits; "
                       "take a model whose matrices are linear layers, or leave {} out",
                       model_type(c.architecture), base::traits_of(c.quantized).bits, c.quantized_by));
  if (precision.on_gpu)
    throw ProcessorsOnly(fmt::format("weights in blocks are multiplied on processors only ({} {})", c.quantized_by,
                                     base::traits_of(c.quantized).name),
                         "leave " + c.quantized_by + " or accelerator out");
  for (const std::string& module : adapters.whole)
    if (is_in_a_block(c, module) && module.find("norm") == std::string::npos)
      refuse(c, fmt::format("{} is kept in {} bits and cannot be trained whole; leave it out of lora.modules_to_save",
                            module, base::traits_of(c.quantized).bits));
}

void quantize(ModelConfig& config, base::BlockFormat format, const std::string& folder) {
  if (config.quantized != base::BlockFormat::none && config.quantized != format)
    throw UsageError(fmt::format("{} {}: {} holds its matrices in {} already; leave {} out", config.quantized_by,
                                 base::traits_of(format).name, folder, base::traits_of(config.quantized).name,
                                 config.quantized_by));
  config.quantized = format;
}

void quantize(ParameterSpec& p, base::BlockFormat format, const std::string& setting) {
  if (format == base::BlockFormat::none) return;
  const std::vector<int64_t>& whole = p.whole_shape();
  ops::BlockPart part = ops::whole_part(format, whole[0], whole[1]);
  if (p.split_dim == 0) part.row_spans.clear();
  for (const Piece& piece : p.pieces) {
    const ops::BlockPart::Span span{piece.begin, piece.end};
    p.split_dim == 0 ? part.row_spans.push_back(span) : void(part.column_span = span);
  }
  if (const std::string why = ops::cannot_divide(part, setting); !why.empty())
    throw UsageError(fmt::format("{} {}: {} {}", setting, base::traits_of(format).name, p.name, why));
  for (ops::BlockPart::Span& span : part.row_spans)  // padding has no blocks, and is zero
    span = {std::min(span.begin, part.rows), std::min(span.end, part.rows)};
  p.quantized = std::move(part);
}

ops::Quantized quantize_values(const ParameterSpec& p, const ReadValues& read) {
  return ops::quantize(p.quantized.format, p.quantized.rows * p.quantized.columns, p.name,
                       [&](int64_t begin, int64_t end, float* values) { read(p, begin, end, values); });
}

std::vector<uint8_t> quantized_record(const ParameterSpec& p, const ops::Quantized& whole) {
  if (whole.format != p.quantized.format)
    throw CheckpointError(fmt::format("{} lies in {}, and the model is kept in {}", p.name,
                                      base::traits_of(whole.format).name, base::traits_of(p.quantized.format).name),
                          "", p.name);
  std::vector<uint8_t> record(static_cast<size_t>(p.quantized.record_bytes()));
  ops::write_record(whole, p.quantized, record.data());
  return record;
}

}  // namespace trireme::model
