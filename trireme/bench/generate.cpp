// Writing and reading text, beside the memory's read rate and the arithmetic peak.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "trireme/base/text.h"
#include "trireme/bench/commands.h"
#include "trireme/bench/limits.h"
#include "trireme/bench/nearer_limit.h"
#include "trireme/generate/alone.h"
#include "trireme/train/inference.h"
#include "trireme/train/setup.h"

namespace trireme::bench {
namespace {

constexpr int64_t kCached = 256;   ///< tokens of a text that is being written
constexpr int64_t kPrompt = 512;   ///< tokens that are read at once
constexpr int64_t kTexts[] = {1, 8, 32};

/// One run of the list, again and again: `texts` texts with `rows` new tokens each behind `cached`.
class Run {
 public:
  Run(engine::Engine& engine, int64_t texts, int64_t rows, int64_t cached) : engine_(engine) {
    const int64_t pages = (cached + rows + ops::kAttentionPage - 1) / ops::kAttentionPage;
    pages_.resize(static_cast<size_t>(texts * pages));
    std::iota(pages_.begin(), pages_.end(), 0);
    std::vector<int64_t> places, wanted;
    for (int64_t t = 0; t < texts; ++t) {
      const int32_t* own = pages_.data() + t * pages;
      tokens_.sequences.push_back({.first_row = t * rows, .tokens = rows, .length = cached + rows, .pages = own});
      for (int64_t i = cached; i < cached + rows; ++i) {
        ids_.push_back((t + i) % engine.plan().model->config.vocab_size);
        positions_.push_back(i);
        places.push_back(own[i / ops::kAttentionPage] * ops::kAttentionPage + i % ops::kAttentionPage);
      }
      wanted.push_back((t + 1) * rows - 1);
    }
    tokens_.places = at::tensor(places, at::kLong);
    tokens_.logit_rows = at::tensor(wanted, at::kLong);
    row_.resize(static_cast<size_t>(engine.plan().model->config.vocab_size));
  }

  /// A token for each text.
  void operator()() {
    const at::Tensor logits = engine_.generate(ids_, positions_, tokens_);
    for (int64_t t = 0; t < logits.size(0); ++t) {
      at::from_blob(row_.data(), {logits.size(1)}, at::kFloat).copy_(logits[t]);
      generate::draw(row_, {.temperature = 0}, {});
    }
  }

 private:
  engine::Engine& engine_;
  std::vector<int32_t> pages_;
  std::vector<int64_t> ids_, positions_;
  model::NewTokens tokens_;
  std::vector<float> row_;
};

/// Bytes of the weights that a run reads, and operations of a token's products.
struct Work {
  double weights = 0, flops = 0, head_flops = 0;  ///< of the head, which computes the last row of each text only
  double cache = 0;  ///< bytes of one cached token
};

Work work_of(const engine::Engine& engine) {
  const plan::StepPlan& plan = engine.plan();
  const model::Model& m = *plan.model;
  const auto size = double(c10::elementSize(plan.request.precision.compute));
  Work work;
  for (size_t u = 1; u < m.units.size(); ++u) {  // of the embedding, a row for each token
    for (const model::ParameterSpec& p : m.units[u]->parameters())
      work.weights += p.is_record() ? double(p.record_bytes()) : double(p.numel()) * size;
    (u + 1 < m.units.size() ? work.flops : work.head_flops) += m.units[u]->forward_flops({1, 1});
    work.cache += 2 * double(m.units[u]->cache_width()) * size;
  }
  return work;
}

/// ", q4_0" for the matrices in few bits, and the head's.
std::string in_blocks(const model::ModelConfig& config) {
  std::string names;
  if (config.quantized != base::BlockFormat::none) names += fmt::format(", {}", base::traits_of(config.quantized).name);
  if (config.quantized_head != base::BlockFormat::none)
    names += fmt::format(", head {}", base::traits_of(config.quantized_head).name);
  return names;
}

}  // namespace

int bench_generate(const Settings& settings, const std::string& command) {
  const int threads = use_threads(settings);
  const model::ModelConfig config = model::config_of(settings.model);
  const model::Precision precision{.compute = settings.precision.format == model::NumberFormat::automatic
                                                  ? train::resolve_precision(settings).compute
                                                  : train::inference_precision(settings).compute};
  const int64_t most = *std::ranges::max_element(kTexts);
  const int64_t cached = std::min(kCached, config.longest_generation() - 1),
                prompt = std::min(kPrompt, config.longest_generation());
  generate::Alone alone(config, precision, {},
                        {.texts = most, .tokens = prompt, .cache_tokens = most * (kCached + ops::kAttentionPage)});
  const Work work = work_of(alone.engine());
  Report report = new_report("generate", command);
  Limits limits(threads);
  NearerLimit beside(precision.compute, threads, settings.bench.quick);
  const std::string shape =
      fmt::format("{}, {}{}, {} of weights, {}", config.name, dtype_name(precision.compute), in_blocks(config),
                  base::human_bytes(static_cast<int64_t>(work.weights)), base::plural(threads, "thread"));
  Progress progress("bench generate");
  const auto add = [&](const std::string& name, int64_t texts, int64_t rows, int64_t behind) {
    progress.step(std::ssize(report.rows), std::ssize(kTexts) + 1, name);
    Run run(alone.engine(), texts, rows, behind);
    const double tokens = double(texts * rows), bytes = work.weights + double(texts * behind) * work.cache,
                 flops = tokens * work.flops + double(texts) * work.head_flops;
    Row row{.name = name, .shape = shape};
    beside.time(row, limits, bytes, flops, [&] { run(); });
    row.values = {{"tokens/s", tokens / row.median_seconds}};
    report.rows.push_back(row);
  };
  for (const int64_t texts : kTexts)
    add(fmt::format("{} being written, {} tokens long", base::plural(texts, "text"), cached), texts, 1, cached);
  add(fmt::format("a prompt of {} tokens", prompt), 1, prompt, 0);
  limits.again();
  report.limits = limits.all();
  deliver(report, settings);
  return 0;
}

}  // namespace trireme::bench
