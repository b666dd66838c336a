#include "trireme/train/quantized_sampler.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "trireme/adapt/from_settings.h"
#include "trireme/model/quantized.h"
#include "trireme/train/answer_room.h"
#include "trireme/train/setup.h"
#include "trireme/train/whole_weights.h"

namespace trireme::train {
namespace {

model::ModelConfig sampler_config(const Settings& settings, const model::ModelConfig& config) {
  model::ModelConfig sampler = merged_config(config, adapt::adapters_of(settings.lora, config));
  sampler.quantized = settings.grpo.rollout_quantize;
  sampler.quantized_by = "grpo.rollout_quantize";
  return sampler;
}

// 8 bits round numbers of training only.
model::Precision sampler_precision(const Settings& settings) {
  model::Precision precision = resolve_precision(settings);
  precision.float8 = false;
  return precision;
}

}  // namespace

int64_t quantized_sampler_bytes(const Settings& settings, const model::ModelConfig& config) {
  if (settings.task != Learning::rewards || settings.grpo.rollout_quantize == base::BlockFormat::none) return 0;
  return generate::alone_bytes(sampler_config(settings, config), sampler_precision(settings),
                               room_for_answers(settings.grpo));
}

QuantizedSampler::QuantizedSampler(Session& session)
    : s_(session),
      alone_(sampler_config(s_.settings, model::config_of(s_.settings.model)), sampler_precision(s_.settings), {},
             room_for_answers(s_.settings.grpo), /*longest_prompt=*/0, s_.engine->lent_memory()) {}

void QuantizedSampler::load() {
  WholeWeights weights(*s_.engine, s_.model, s_.world(), WholeWeights::On::every_rank);
  alone_.refill([&](const model::ParameterSpec& p, const at::Tensor& to) {
    if (!p.is_quantized()) return weights.collect(p, to);
    const at::Tensor whole = at::empty(p.whole_shape(), at::kFloat);
    weights.collect(p, whole);
    const float* from = whole.data_ptr<float>();
    const ops::Quantized codes =
        model::quantize_values(p, [from](const model::ParameterSpec&, int64_t begin, int64_t end, float* values) {
          std::copy(from + begin, from + end, values);
        });
    const std::vector<uint8_t> record = model::quantized_record(p, codes);
    std::memcpy(to.data_ptr(), record.data(), record.size());
  });
}

}  // namespace trireme::train
