#include "trireme/train/setup.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/units.h"
#include "trireme/config/learning_rate.h"
#include "trireme/config/mesh_shape.h"
#include "trireme/config/precision.h"
#include "trireme/config/validate.h"
#include "trireme/data/byte_tokenizer.h"
#include "trireme/data/load_tokenizer.h"
#include "trireme/launch/core_share.h"
#include "trireme/schedule/pipeline.h"
#include "trireme/train/conversations.h"

namespace trireme::train {
namespace fs = std::filesystem;

namespace {
constexpr const char* kAustenPath = "data/austen.txt";

model::ModelConfig named_model(const std::string& name) {
  if (fs::exists(fs::path(name) / "config.json"))
    return model::parse_hugging_face_config(base::read_side_file(fs::path(name) / "config.json"),
                                            name + "/config.json");
  return model::catalogue_config(name);
}
}  // namespace

model::ModelConfig resolve_model(const config::Settings& settings) {
  const config::ModelSettings& m = settings.model;
  if (m.name.empty())
    throw UsageError(fmt::format("no model is named: give one, for instance 'trireme pretrain llama-5m'"));
  model::ModelConfig c = named_model(m.name);
  const auto take = [](auto& field, const auto& given) {
    if (given) field = *given;
  };
  if (m.model_type) {
    set_architecture(c, model::find_architecture(*m.model_type, "model.model_type"));
  }
  const bool width_changed = m.hidden_size || m.num_attention_heads;
  take(c.vocab_size, m.vocab_size);
  take(c.hidden_size, m.hidden_size);
  take(c.intermediate_size, m.intermediate_size);
  if (m.num_hidden_layers) set_num_hidden_layers(c, *m.num_hidden_layers);
  take(c.num_attention_heads, m.num_attention_heads);
  if (m.num_attention_heads && !m.num_key_value_heads) c.num_key_value_heads = c.num_attention_heads;
  take(c.num_key_value_heads, m.num_key_value_heads);
  if (width_changed && !m.head_dim && c.num_attention_heads > 0) {
    if (c.hidden_size % c.num_attention_heads != 0)
      throw UsageError(
          fmt::format("model.num_attention_heads {} does not divide model.hidden_size {}; set model.head_dim "
                      "or take a divisor",
                      c.num_attention_heads, c.hidden_size));
    c.head_dim = c.hidden_size / c.num_attention_heads;
  }
  take(c.head_dim, m.head_dim);
  take(c.max_position_embeddings, m.max_position_embeddings);
  take(c.norm_eps, m.rms_norm_eps);
  take(c.rope_theta, m.rope_theta);
  take(c.tie_word_embeddings, m.tie_word_embeddings);
  take(c.initializer_range, m.initializer_range);
  c.validate();
  return c;
}

model::Precision resolve_precision(const config::Settings& settings) {
  model::Precision precision{at::kFloat, at::kFloat};
  const config::Precision chosen = config::resolve(settings);
  if (chosen == config::Precision::bf16_mixed) precision.compute = at::kBFloat16;
  if (chosen == config::Precision::fp64_true) precision = {at::kDouble, at::kDouble};
  precision.on_gpu = settings.accelerator == config::Accelerator::cuda;
  return precision;
}

int64_t sequence_length(const config::Settings& settings, const model::ModelConfig& model) {
  const int64_t sequence = settings.train.max_seq_length.value_or(model.max_position_embeddings);
  if (sequence > model.max_position_embeddings)
    throw UsageError(
        fmt::format("train.max_seq_length {} exceeds the model's {} positions; set "
                    "model.max_position_embeddings {} or a shorter sequence",
                    sequence, model.max_position_embeddings, sequence));
  return sequence;
}

model::Grouping grouping(const config::Settings& settings) {
  using By = model::Grouping::By;
  const config::WrapSettings& w = settings.wrap;
  const By by = w.by == config::WrapBy::block ? By::block : w.by == config::WrapBy::layer ? By::layer : By::parameter;
  return {.by = by, .min_num_params = w.min_num_params, .own_group = w.units.value_or(std::vector<std::string>{})};
}

comm::ProcessMesh resolve_mesh(const config::Settings& settings, int num_ranks) {
  const config::MeshShape shape = config::mesh_shape(settings, num_ranks);
  return {{.pp = static_cast<int>(shape.pp),
           .replicate = static_cast<int>(shape.replicate),
           .shard = static_cast<int>(shape.shard),
           .cp = static_cast<int>(shape.cp),
           .tp = static_cast<int>(shape.tp)},
          num_ranks};
}

namespace {

plan::Strategy strategy_of(config::Strategy strategy) {
  switch (strategy) {
    case config::Strategy::no_shard:
      return plan::Strategy::no_shard;
    case config::Strategy::zero1:
      return plan::Strategy::zero1;
    case config::Strategy::shard_grad_op:
    case config::Strategy::hybrid_shard_zero2:
      return plan::Strategy::shard_grad_op;
    default:
      return plan::Strategy::full_shard;
  }
}

plan::RecomputeRequest recompute_of(const config::RecomputeSettings& r) {
  using Mode = plan::RecomputeRequest::Mode;
  return {.mode = r.mode == config::Recompute::none   ? Mode::none
                  : r.mode == config::Recompute::full ? Mode::full
                                                      : Mode::selective,
          .values = r.values,
          .every = static_cast<int>(r.every)};
}

schedule::Prefetch prefetch_of(const config::ScheduleSettings& s) {
  using Backward = schedule::Prefetch::Backward;
  return {.depth = static_cast<int>(s.prefetch),
          .forward = s.prefetch_forward,
          .backward = s.prefetch_backward == config::PrefetchBackward::pre    ? Backward::pre
                      : s.prefetch_backward == config::PrefetchBackward::post ? Backward::post
                                                                              : Backward::none,
          .limit = s.limit_unsharded.value_or(0)};
}

}  // namespace

plan::StepRequest step_request(const config::Settings& settings, const model::ModelConfig& model, int rank,
                               int num_ranks) {
  plan::StepRequest r;
  r.precision = resolve_precision(settings);
  r.shape = {settings.train.micro_batch_size, sequence_length(settings, model)};
  r.mesh = resolve_mesh(settings, num_ranks);
  r.rank = rank;
  r.strategy = strategy_of(settings.strategy);
  r.ordered = settings.reduce == config::Reduce::ordered;
  r.local_accumulation = settings.accumulation == config::Accumulation::local;
  r.sequence_parallel = settings.mesh.sequence_parallel;
  r.context = settings.mesh.context == config::Context::ring ? model::Parallel::Context::ring
                                                             : model::Parallel::Context::ulysses;
  r.documents = {.attention = settings.data.reset_attention_mask, .positions = settings.data.reset_position_ids};
  r.num_micro_batches = static_cast<int>(config::accumulation(settings, num_ranks));
  r.num_evaluation_micro_batches = 1;
  r.recompute = recompute_of(settings.recompute);
  r.prefetch = prefetch_of(settings.schedule);
  r.reduce_lag = static_cast<int>(settings.schedule.reduce_lag);
  r.pipeline.schedule = settings.pipeline.schedule;
  r.pipeline.chunks = static_cast<int>(settings.pipeline.chunks);
  for (int64_t n : settings.pipeline.split.value_or(std::vector<int64_t>{}))
    r.pipeline.split.push_back(static_cast<int>(n));
  r.optimizer_state = optim::state_names(optimizer_options(settings));
  // What a GPU holds is copied to the host to be saved, outside the plan.
  r.save_copy = settings.save.mode == config::SaveMode::async && settings.accelerator == config::Accelerator::cpu;
  r.guard_bytes = settings.engine.poison ? 256 : 0;
  return r;
}

namespace {

// "0.7 some/path" or "some/path".
data::DataSource mixture_source(const std::string& item) {
  if (item == "?") throw UsageError("data.mixture takes paths, or {path: PATH, weight: NUMBER} for each of them");
  const size_t space = item.find(' ');
  const auto weight = space == std::string::npos ? std::nullopt : base::parse_number(item.substr(0, space));
  if (!weight) return {.path = item};
  if (!(*weight > 0))
    throw UsageError(fmt::format("data.mixture: the weight of {} must be above 0, not {}", item.substr(space + 1),
                                 item.substr(0, space)));
  return {.path = item.substr(space + 1), .weight = weight};
}

std::vector<data::DataSource> mixture_sources(const config::DataSettings& d) {
  if (d.train_data_path)
    throw UsageError("data.mixture and data.train_data_path both say what to learn from; give one of them");
  std::vector<data::DataSource> sources;
  for (const std::string& item : *d.mixture) sources.push_back(mixture_source(item));
  if (sources.empty()) throw UsageError("data.mixture is empty; give it at least one path");
  const auto weighted = std::ranges::count_if(sources, [](const auto& s) { return s.weight.has_value(); });
  if (weighted != 0 && weighted != std::ssize(sources))
    throw UsageError(
        fmt::format("data.mixture gives {} of {} sources a weight; give one to all of them, or to none (each sample of "
                    "each source once an epoch)",
                    weighted, sources.size()));
  return sources;
}

fs::path single_source(const config::DataSettings& d) {
  if (d.train_data_path) return *d.train_data_path;
  if (d.name != "Austen")
    throw UsageError(fmt::format(
        "data {} needs --data.train_data_path: text, JSONL or Parquet, a folder of them, or a tokenized set", d.name));
  if (!fs::exists(kAustenPath))
    throw UsageError(
        fmt::format("the Austen corpus is not at {}: run 'make setup', or name a text with --data TextFiles "
                    "--data.train_data_path FILE",
                    kAustenPath));
  return kAustenPath;
}

}  // namespace

data::TrainingDataOptions training_data_options(const config::Settings& settings, int64_t sequence) {
  const config::DataSettings& d = settings.data;
  data::TrainingDataOptions o;
  if (d.mixture) {
    o.sources = mixture_sources(d);
    o.setting = "data.mixture";
  } else {
    o.sources = {{.path = single_source(d)}};
    o.setting = "data.train_data_path";
  }
  if (d.val_data_path) o.val_data_path = *d.val_data_path;
  o.val_split_fraction = d.val_split_fraction;
  if (d.val_split) o.split = *d.val_split == "last" ? data::Split::last : data::Split::sample;
  o.sequence = sequence;
  o.packing = d.packing == "best_fit" ? data::Packing::best_fit
              : d.packing == "none"   ? data::Packing::none
                                      : data::Packing::wrapped;
  o.apart = d.reset_attention_mask;
  o.seed = static_cast<uint64_t>(d.seed);
  o.text_field = d.text_field;
  o.conversations = conversation_source(settings);
  o.conversations.options.max_tokens = o.sequence + 1;  // as many inputs, and the last target
  o.append_eos = d.append_eos;
  o.cache_dir = fs::path(settings.out_dir) / "tokens";
  return o;
}

namespace {

std::unique_ptr<data::Tokenizer> fitting_tokenizer(const fs::path& path, const model::ModelConfig& model) {
  std::unique_ptr<data::Tokenizer> tokenizer = std::make_unique<data::ByteTokenizer>();
  if (!path.empty()) tokenizer = data::load_tokenizer(path);
  if (model.vocab_size < tokenizer->vocab_size())
    throw UsageError(fmt::format(
        "the model's vocabulary of {} is smaller than the {} of the {} tokenizer{}; set model.vocab_size {} for a new "
        "model, or data.tokenizer to the one that belongs to this model",
        model.vocab_size, tokenizer->vocab_size(), tokenizer->name(), path.empty() ? "" : " in " + path.string(),
        tokenizer->vocab_size()));
  return tokenizer;
}

}  // namespace

fs::path tokenizer_path(const config::Settings& settings) {
  const fs::path folder = settings.model.name;
  const auto& given = settings.data.tokenizer;
  if (given) return *given == "byte" ? fs::path() : fs::path(*given);
  return data::has_tokenizer(folder) ? folder : fs::path();
}

std::unique_ptr<data::Tokenizer> resolve_tokenizer(const config::Settings& settings, const model::ModelConfig& model) {
  return fitting_tokenizer(tokenizer_path(settings), model);
}

std::unique_ptr<data::Tokenizer> checkpoint_tokenizer(const fs::path& folder, const model::ModelConfig& model) {
  return fitting_tokenizer(data::has_tokenizer(folder) ? folder : fs::path(), model);
}

int threads_of_a_rank(const config::Settings& settings) {
  if (settings.launch.threads_per_rank) return static_cast<int>(*settings.launch.threads_per_rank);
  if (const char* given = std::getenv("OMP_NUM_THREADS"))
    if (const int threads = std::atoi(given); threads > 0) return threads;
  const int64_t here = std::max<int64_t>(1, config::world_size(settings) / settings.num_nodes);
  return launch::share_cores(static_cast<int>(here)).threads_per_rank;
}

int64_t run_steps(const config::Settings& settings, int64_t sequence, int64_t samples_per_epoch) {
  const config::TrainSettings& t = settings.train;
  int64_t steps = std::numeric_limits<int64_t>::max();
  if (t.max_steps) steps = std::min(steps, *t.max_steps);
  if (t.max_tokens) steps = std::min(steps, *t.max_tokens / (t.global_batch_size * sequence));
  if (t.epochs) steps = std::min(steps, *t.epochs * samples_per_epoch / t.global_batch_size);
  if (steps == std::numeric_limits<int64_t>::max()) return 0;
  if (steps < 1)
    throw UsageError(fmt::format(
        "the run is shorter than one step of train.global_batch_size {} ({} tokens): {}; lower "
        "train.global_batch_size, "
        "or train longer",
        t.global_batch_size, t.global_batch_size * sequence,
        t.epochs && *t.epochs * samples_per_epoch < t.global_batch_size
            ? fmt::format("train.epochs {} of these data are {} samples", *t.epochs, *t.epochs * samples_per_epoch)
        : t.max_tokens && *t.max_tokens < t.global_batch_size * sequence
            ? fmt::format("train.max_tokens is {}", *t.max_tokens)
            : fmt::format("train.max_steps is {}", t.max_steps.value_or(0))));
  return steps;
}

int64_t evaluation_interval(const config::Settings& settings, int64_t steps, int64_t num_samples) {
  constexpr int64_t kTimes = 20, kFewestSteps = 50, kMostSteps = 600;
  constexpr int64_t kPassesOfAStep = 3;  // forward, and twice that backward; an evaluation is one forward
  if (settings.eval.interval) return *settings.eval.interval;
  const config::TrainSettings& t = settings.train;
  const int64_t samples = std::min(num_samples, settings.eval.max_iters * t.micro_batch_size);
  const int64_t cheap = kTimes * samples / (kPassesOfAStep * t.global_batch_size);
  return std::clamp(std::max(steps > 0 ? steps / kTimes : kMostSteps, cheap), kFewestSteps, kMostSteps);
}

optim::LrSchedule lr_schedule(const config::Settings& settings, int64_t steps) {
  using Decay = optim::LrSchedule::Decay;
  const config::TrainSettings& t = settings.train;
  const bool constant = steps == 0 || t.lr_decay == config::LrDecay::constant;
  return {.peak = config::scaled_lr(settings),
          .min = config::lowest_lr(settings),
          .warmup_steps = t.lr_warmup_steps,
          .max_steps = steps,
          .decay = constant                                ? Decay::constant
                   : t.lr_decay == config::LrDecay::cosine ? Decay::cosine
                                                           : Decay::linear};
}

optim::OptimizerOptions optimizer_options(const config::Settings& settings) {
  const config::OptimizerSettings& o = settings.optimizer;
  optim::OptimizerOptions options = optim::options_of(o.name);
  if (o.betas) options.beta1 = (*o.betas)[0], options.beta2 = (*o.betas)[1];
  options.eps = o.eps.value_or(options.eps);
  options.weight_decay = o.weight_decay.value_or(options.weight_decay);
  options.momentum = o.momentum.value_or(options.momentum);
  options.nesterov = o.nesterov.value_or(options.nesterov);
  return options;
}

}  // namespace trireme::train
