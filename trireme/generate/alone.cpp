#include "trireme/generate/alone.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/model/layers.h"

namespace trireme::generate {
namespace {

plan::StepPlan plan_of(const model::Model& model, const model::Precision& precision, const Room& room,
                       int64_t longest_prompt) {
  return plan::make_step_plan(
      model, {.precision = precision, .trains = false, .generation = shape_of(model.config, room, longest_prompt)});
}

constexpr double kSmall = 0x1p-7;

/// A byte for codes and scales that stand for numbers below 1: a float of such bytes is 0.046, a half 0.005.
double byte_of_small(base::BlockFormat format) { return base::traits_of(format).scale_bytes == 2 ? 0x1d : 0x3d; }

engine::Engine engine_of(const model::Model& model, plan::StepPlan plan, std::span<char> memory) {
  engine::Communicators alone = engine::connect(plan, {.name = "", .backend = "auto"});
  return {model, std::move(plan), std::move(alone), {.memory = memory}};
}

}  // namespace

Alone::Alone(const model::ModelConfig& config, const model::Precision& precision, const model::FillWeights& fill,
             const Room& room, int64_t longest_prompt, std::span<char> memory)
    : model_(model::build_model(config, precision, {}, {.trains = false})),
      engine_(engine_of(model_, plan_of(model_, precision, room, longest_prompt), memory)),
      room_(room) {
  refill(fill);
}

Generator& Alone::generator() {
  if (!generator_) generator_.emplace(engine_, room_);
  return *generator_;
}

void Alone::refill(const model::FillWeights& fill) {
  for (const engine::GroupState& group : engine_.state()) {
    at::Tensor(group.master).zero_();
    for (size_t i = 0; i < group.parameters->size(); ++i) {
      const model::ParameterSpec& p = (*group.parameters)[i];
      const shard::FlatTensor& place = group.layout->tensors()[i];
      const at::Tensor flat = group.master.narrow(0, place.offset, place.numel);
      const auto filled = [&](at::Tensor to) {
        fill ? fill(p, to) : void(to.fill_(p.is_quantized() ? byte_of_small(p.quantized.format) : kSmall));
        return to;
      };
      if (p.is_quantized() && p.packed) {
        const at::Tensor record = filled(at::zeros({p.quantized.record_bytes()}, at::kByte));
        ops::BlockRecords blocks;
        blocks.add(p.quantized, record.data_ptr<uint8_t>());
        model::write_packed(p, flat, blocks.matrix());
      } else if (p.packed) {
        model::write_packed(p, flat, filled(at::zeros(p.shape, p.packed->dtype)));
      } else {
        filled(p.is_quantized() ? flat : flat.view(p.shape));
      }
    }
  }
  engine_.refresh_weights();
}

at::Tensor Alone::logits(std::span<const int64_t> tokens, int64_t at_a_time) {
  const Limits& limits = generator().limits();
  const auto count = std::ssize(tokens);
  if (count > std::min(limits.context, limits.pages * limits.page_tokens))
    throw UsageError(fmt::format("the cache has room for {} tokens, and there are {}",
                                 std::min(limits.context, limits.pages * limits.page_tokens), count));
  const int64_t most = std::min({at_a_time > 0 ? at_a_time : count, limits.rows, limits.logit_rows});
  std::vector<int32_t> pages(static_cast<size_t>(limits.pages));
  std::iota(pages.begin(), pages.end(), 0);
  std::vector<at::Tensor> parts;
  for (int64_t first = 0; first < count; first += most) {
    const int64_t rows = std::min(most, count - first);
    const at::Tensor places = at::arange(first, first + rows, at::kLong);
    std::vector<int64_t> positions(static_cast<size_t>(rows));
    std::iota(positions.begin(), positions.end(), first);
    model::NewTokens run{.sequences = {{.first_row = 0, .tokens = rows, .length = first + rows, .pages = pages.data()}},
                         .places = places,
                         .logit_rows = at::arange(rows, at::kLong),
                         .seeds = {0}};
    if (config().is_free()) run.codes = generator().uniform_codes(0, positions);
    parts.push_back(
        engine_
            .generate(tokens.subspan(static_cast<size_t>(first), static_cast<size_t>(rows)), positions, std::move(run))
            .clone());
  }
  return at::cat(parts);
}

int64_t alone_bytes(const model::ModelConfig& config, const model::Precision& precision, const Room& room) {
  const model::Model model = model::build_model(config, precision, {}, {.trains = false});
  return plan_of(model, precision, room, room.tokens).arena.total();
}

}  // namespace trireme::generate
