#include "trireme/train/setup.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <thread>

#include "trireme/adapt/from_settings.h"
#include "trireme/base/cgroup.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/log.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/config/choices.h"
#include "trireme/data/from_settings.h"
#include "trireme/engine/device.h"
#include "trireme/engine/offload_room.h"
#include "trireme/launch/identity/core_share.h"
#include "trireme/launch/identity/environment.h"
#include "trireme/optim/parameter_rules.h"
#include "trireme/plan/step_layouts.h"
#include "trireme/schedule/pipeline.h"
#include "trireme/settings/derived.h"
#include "trireme/settings/validate.h"
#include "trireme/text/byte_tokenizer.h"
#include "trireme/text/load_tokenizer.h"
#include "trireme/train/answer_room.h"
#include "trireme/train/chosen_offload.h"
#include "trireme/train/out_dir.h"
#include "trireme/train/quantized_sampler.h"
#include "trireme/train/starting_point.h"

namespace trireme::train {
namespace fs = std::filesystem;

const Settings& checked(const Settings& settings, const launch::RankEnvironment& environment) {
  validate(settings, environment.world_size);
  validate_backend(settings, environment.world_size);
  return settings;
}

model::Precision resolve_precision(const Settings& settings) {
  model::Precision precision = model::precision_of(settings.precision, number_format(settings));
  precision.on_gpu = settings.accelerator == engine::Accelerator::cuda;
  return precision;
}

int64_t sequence_length(const Settings& settings, const model::ModelConfig& model) {
  const int64_t sequence = settings.train.max_seq_length.value_or(model.max_position_embeddings);
  if (sequence <= model.longest_sequence()) return sequence;
  const bool has_table = model.learned_positions && !starting_weights(settings).empty();  // with a row for each
  throw UsageError(fmt::format(
      "train.max_seq_length {} exceeds the model's {} positions; {}", sequence, model.max_position_embeddings,
      has_table ? "its weights hold no others, so set a shorter sequence"
                : fmt::format("set model.max_position_embeddings {} or a shorter sequence", sequence)));
}

comm::ProcessMesh resolve_mesh(const Settings& settings, int num_ranks) {
  const MeshShape shape = mesh_shape(settings, num_ranks);
  return {{.pp = static_cast<int>(shape.pp),
           .replicate = static_cast<int>(shape.replicate),
           .shard = static_cast<int>(shape.shard),
           .cp = static_cast<int>(shape.cp),
           .tp = static_cast<int>(shape.tp)},
          num_ranks};
}

plan::StepRequest step_request(const Settings& settings, const model::ModelConfig& model, int rank, int num_ranks) {
  plan::StepRequest request = request_without_offload(settings, model, rank, num_ranks);
  const ChosenOffload chosen = choose_offload(settings, model, num_ranks);
  if (!chosen.rungs.empty() && chosen.rungs.back().own > *settings.offload.fit)
    throw UsageError(fmt::format(
        "offload.fit {}: a rank needs {} with {}; try --recompute full, a smaller train.micro_batch_size, or "
        "more ranks",
        base::human_bytes(*settings.offload.fit), base::human_bytes(chosen.rungs.back().own),
        plan::describe(chosen.offload)));
  request.offload = chosen.offload;
  return request;
}

plan::StepRequest request_without_offload(const Settings& settings, const model::ModelConfig& model, int rank,
                                          int num_ranks) {
  plan::StepRequest r;
  r.precision = resolve_precision(settings);
  r.shape = {settings.train.micro_batch_size, sequence_length(settings, model)};
  r.mesh = resolve_mesh(settings, num_ranks);
  r.rank = rank;
  r.strategy = settings.strategy;
  r.reduce = settings.reduce;
  r.accumulation = settings.accumulation;
  r.sequence_parallel = settings.mesh.sequence_parallel;
  r.context = settings.mesh.context;
  // A text to classify and its padding are two documents; so are the replies of a pair, and answers.
  r.documents = settings.task == Learning::classify ? model::DocumentRequest{.attention = true}
                : settings.task == Learning::preferences || settings.task == Learning::rewards
                    ? model::DocumentRequest{.attention = true, .positions = true}
                    : model::DocumentRequest{.attention = settings.data.reset_attention_mask,
                                             .positions = settings.data.reset_position_ids};
  // References of pairs are computed in other micro-batches than they are compared in, so there a row's length counts.
  r.documents.lengths = model.rotates_by_length() && settings.task != Learning::preferences;
  if (settings.task == Learning::rewards) {
    r.generation = generate::shape_of(model, room_for_answers(settings.grpo), /*longest_prompt=*/0);
    const int64_t tp = r.size(comm::Axis::tp);
    r.keeps_reference = settings.grpo.beta > 0;
    r.lent_bytes = quantized_sampler_bytes(settings, model);
    if (r.sequence_parallel) r.generation.rows = (r.generation.rows + tp - 1) / tp * tp;  // ranks divide them
  }
  r.num_micro_batches = static_cast<int>(accumulation(settings, num_ranks));
  r.num_evaluation_micro_batches = 1;
  r.recompute = settings.recompute;
  r.prefetch = schedule::prefetch_of(settings.schedule);
  r.reduce_lag = static_cast<int>(settings.schedule.reduce_lag);
  r.pipeline = settings.pipeline;
  r.optimizer = optim::options_of(settings.optimizer);
  r.steps_in_backward = settings.optimizer.in_backward;
  // What a GPU holds is copied to the host to be saved, outside the plan.
  r.save_copy = settings.save.mode == checkpoint::SaveMode::async && settings.accelerator == engine::Accelerator::cpu;
  r.guard_bytes = settings.engine.poison ? 256 : 0;
  return r;
}

namespace {

model::PolicyOptions policy_options(const GrpoSettings& s) {
  return {.epsilon = s.epsilon,
          .epsilon_high = s.epsilon_high.value_or(s.epsilon),
          .epsilon_c = s.epsilon_c,
          .ratio = s.loss_algo,
          .beta = s.beta,
          .kl = s.kl_loss_mode,
          .ratio_of_kl = s.use_bias_correction_kl,
          .temperature = s.temperature};
}

}  // namespace

model::Objective objective_of(const Settings& settings) {
  model::Objective objective{.label_smoothing = settings.objective.label_smoothing,
                             .z_loss = settings.objective.z_loss};
  if (settings.task == Learning::rewards) objective.policy = policy_options(settings.grpo);
  if (settings.task != Learning::preferences) return objective;
  const model::PreferenceSettings& s = settings.dpo;
  const auto losses = choices_of(model::PairLoss{});
  for (size_t i = 0; i < s.loss_type.size(); ++i) {
    const auto found = std::ranges::find(losses, s.loss_type[i], &config::Choice<model::PairLoss>::name);
    check_invariant(found != losses.end(), "dpo.loss_type has known names");
    const auto weight = s.loss_weights ? base::parse_number((*s.loss_weights)[i]) : 1.0;
    objective.pairs.push_back({.loss = found->value, .weight = weight.value_or(1)});
  }
  objective.options = {.beta = s.beta,
                       .label_smoothing = s.label_smoothing,
                       .discopop_tau = s.discopop_tau,
                       .simpo_gamma = s.simpo_gamma};
  return objective;
}

void check_task(const Settings& settings, const model::ModelConfig& model) {
  if (model.quantized_head != base::BlockFormat::none)
    throw UsageError(
        fmt::format("quantize_head {}: training reads the head's matrix with all its bits; texts can be written and "
                    "judged without them, so leave quantize_head out here and give it to generate and evaluate",
                    base::traits_of(model.quantized_head).name));
  const bool classifies = settings.task == Learning::classify;
  if (classifies == model.is_classifier()) return;
  if (classifies) throw UsageError("task classify needs a model with labels; say how many, as in --model.num_labels 2");
  // Another task, or adapters, are refused beside task classify.
  if (settings.task == Learning::language && !settings.lora.r && !settings.lora.initial_adapter)
    throw UsageError("a model with labels (model.num_labels) classifies texts: give --task classify");
  throw UsageError(
      fmt::format("a model with labels classifies texts: train it with trireme finetune_full {} --task classify, or "
                  "name a model without labels",
                  base::shell_quoted(settings.model.name)));
}

model::Model build_run_model(const Settings& settings, const model::ModelConfig& config,
                             const plan::StepRequest& request) {
  check_task(settings, config);
  model::Grouping grouping = model::grouping_of(settings.wrap);
  grouping.matrices_apart = settings.optimizer.name == optim::Rule::muon;
  model::ModelConfig trained = config;
  trained.dropout.neftune = settings.objective.neftune_alpha;
  model::Model model = model::build_model(trained, request.precision, request.parallel(), grouping,
                                          adapt::adapters_of(settings.lora, config), objective_of(settings));
  optim::apply_parameter_rules(model, grouping, optim::parameter_rules(settings.optimizer));
  return model;
}

data::ConversationSource conversation_source(const Settings& settings) {
  data::ConversationSource source = data::conversation_source(settings.data, tokenizer_path(settings));
  const int64_t cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
  source.options.num_threads = static_cast<int>(settings.prepare.threads.value_or(cores));
  // As many inputs, and the last target.
  if (settings.train.max_seq_length) source.options.max_tokens = *settings.train.max_seq_length + 1;
  return source;
}

data::TrainingDataOptions training_data_options(const Settings& settings, int64_t sequence) {
  data::TrainingDataOptions options = data::training_data_options(settings.data);
  options.sequence = sequence;
  options.conversations = conversation_source(settings);
  options.conversations.options.max_tokens = sequence + 1;
  options.cache_dir = fs::path(settings.out_dir) / kTokensFolder;
  options.vocab_size = model::config_of(settings.model).vocab_size;
  return options;
}

namespace {

// `trains`: by settings that another model or tokenizer can be named in.
std::unique_ptr<text::Tokenizer> fitting_tokenizer(const fs::path& path, const model::ModelConfig& model, bool trains) {
  std::unique_ptr<text::Tokenizer> tokenizer = std::make_unique<text::ByteTokenizer>();
  if (!path.empty()) tokenizer = text::load_tokenizer(path);
  if (model.vocab_size < tokenizer->vocab_size())
    throw UsageError(fmt::format(
        "the model's vocabulary of {} is smaller than the {} of the {} tokenizer{}; {}", model.vocab_size,
        tokenizer->vocab_size(), tokenizer->name(), path.empty() ? "" : " in " + path.string(),
        trains
            ? fmt::format("set model.vocab_size {} for a new model, or data.tokenizer to the one that belongs to this "
                          "model",
                          tokenizer->vocab_size())
            : "put the tokenizer that belongs to this model into its folder"));
  return tokenizer;
}

// Text of a folder whose tokenizer was not copied with its other files would be read as bytes, with numbers that look
// real. Told once a job.
void tell_of_bytes(const fs::path& folder) {
  static bool told = false;
  const launch::RankEnvironment environment = launch::rank_environment();
  if (told || environment.launcher == "trireme" || environment.global_rank > 0) return;
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    if (told || !base::is_file(folder / name)) continue;
    told = true;
    base::warn("{} has a {} and no tokenizer: text is read as bytes; put its tokenizer.json beside it", folder.string(),
               name);
  }
}

// Bytes of all ranks of one host: planned, of these what copies for save.mode async take, in the host's memory beside
// that of devices, and on disk. Each rank is
// planned, because they differ: in what they own, and in the layers of their pipeline stage.
struct HostBytes {
  int64_t planned = 0, save_copies = 0, host = 0, disk = 0;
};

HostBytes host_bytes(const Settings& settings, const model::ModelConfig& config) {
  const int world = static_cast<int>(world_size(settings));
  const int64_t here = world / settings.num_nodes;
  const comm::Backend backend = settings.comm.backend;
  const bool shared_memory = backend == comm::Backend::automatic || backend == comm::Backend::shm;
  HostBytes sum;
  const bool on_gpu = settings.accelerator == engine::Accelerator::cuda;
  const bool offloads = settings.offload.any() || settings.offload.fit;
  const int64_t planned = on_gpu && !offloads ? 1 : here;  // a plan may refuse
  for (int rank = 0; rank < planned; ++rank) {
    const plan::StepRequest request = step_request(settings, config, rank, world);
    const model::Model model = build_run_model(settings, config, request);
    const plan::StepPlan plan = plan::make_step_plan(model, request);
    sum.planned += plan::bytes_on_host(plan, here, shared_memory);
    if (request.save_copy && !request.offload.uses(schedule::Tier::disk))
      sum.save_copies += plan.save_copy_bytes(plan.local_groups);
    sum.host += plan.arena.of(schedule::Memory::host);
    if (on_gpu && offloads && settings.save.mode == checkpoint::SaveMode::async)
      sum.host += plan.save_copy_bytes(plan.local_groups);
    sum.disk += plan.arena.of(schedule::Memory::disk);
  }
  return sum;
}

void check_save_copies(const HostBytes& bytes, int64_t ranks) {
  const int64_t available = base::available_memory().bytes;
  if (bytes.save_copies == 0 || bytes.planned <= available) return;
  throw UsageError(
      fmt::format("save.mode async keeps a copy of the state of every rank, {} altogether: with these the {} on this "
                  "host need {}, without "
                  "{}, and {} are available; use --save.mode sync, or more hosts",
                  base::human_bytes(bytes.save_copies), base::plural(ranks, "rank"), base::human_bytes(bytes.planned),
                  base::human_bytes(bytes.planned - bytes.save_copies), base::human_bytes(available)));
}

}  // namespace

fs::path offload_path(const Settings& settings) {
  if (settings.offload.path) return *settings.offload.path;
  std::error_code ignored;
  return fs::is_directory(settings.out_dir, ignored) ? fs::path(settings.out_dir) : fs::path(".");
}

fs::path tokenizer_path(const Settings& settings) { return data::tokenizer_path(settings.data, settings.model.name); }

std::unique_ptr<text::Tokenizer> resolve_tokenizer(const Settings& settings, const model::ModelConfig& model) {
  const fs::path path = tokenizer_path(settings);
  if (path.empty() && !settings.data.tokenizer) tell_of_bytes(settings.model.name);
  return fitting_tokenizer(path, model, /*trains=*/true);
}

std::unique_ptr<text::Tokenizer> checkpoint_tokenizer(const fs::path& folder, const model::ModelConfig& model) {
  const bool has_own = text::has_tokenizer(folder);
  if (!has_own) tell_of_bytes(folder);
  return fitting_tokenizer(has_own ? folder : fs::path(), model, /*trains=*/false);
}

int threads_of_a_rank(const Settings& settings) {
  if (settings.launch.threads_per_rank) return static_cast<int>(*settings.launch.threads_per_rank);
  if (const auto threads = launch::threads_of_variable(std::getenv("OMP_NUM_THREADS"))) return *threads;
  const int64_t here = std::max<int64_t>(1, world_size(settings) / settings.num_nodes);
  return launch::share_cores(static_cast<int>(here)).threads_per_rank;
}

int64_t run_steps(const Settings& settings, int64_t sequence, int64_t samples_per_epoch, const Done& done) {
  const train::TrainSettings& t = settings.train;
  constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();
  int64_t steps = kNoEnd, samples = 0;
  if (t.epochs && __builtin_mul_overflow(*t.epochs, samples_per_epoch, &samples)) samples = kNoEnd;
  if (t.max_steps) steps = std::min(steps, *t.max_steps);
  const auto up_to = [&](int64_t limit, int64_t so_far, int64_t of_step) {
    const int64_t left = std::max<int64_t>(0, limit - so_far) / of_step;
    return left > kNoEnd - done.step ? kNoEnd : done.step + left;
  };
  if (t.max_tokens) steps = std::min(steps, up_to(*t.max_tokens, done.tokens, t.global_batch_size * sequence));
  if (t.epochs) steps = std::min(steps, up_to(samples, done.samples, t.global_batch_size));
  if (steps == kNoEnd) return 0;
  if (steps < 1)
    throw UsageError(
        fmt::format("the run is shorter than one step of train.global_batch_size {} ({} tokens): {}; lower "
                    "train.global_batch_size, "
                    "or train longer",
                    t.global_batch_size, t.global_batch_size * sequence,
                    t.epochs && samples < t.global_batch_size
                        ? fmt::format("train.epochs {} of these data are {} samples", *t.epochs, samples)
                    : t.max_tokens && *t.max_tokens < t.global_batch_size * sequence
                        ? fmt::format("train.max_tokens is {}", *t.max_tokens)
                        : fmt::format("train.max_steps is {}", t.max_steps.value_or(0))));
  return steps;
}

const char* ending_setting(const Settings& settings, int64_t last, int64_t tokens_done, int64_t tokens_per_step) {
  const TrainSettings& t = settings.train;
  if (t.max_steps && *t.max_steps == last) return "train.max_steps";
  return t.max_tokens && *t.max_tokens - tokens_done < tokens_per_step ? "train.max_tokens" : "train.epochs";
}

std::string nothing_to_do(const Settings& settings, int64_t last, int64_t step, int64_t tokens_done,
                          int64_t tokens_per_step) {
  return fmt::format("nothing to do: the run ends at step {}, the checkpoint is at step {}; raise {} to go on", last,
                     step, ending_setting(settings, last, tokens_done, tokens_per_step));
}

int64_t evaluation_interval(const Settings& settings, int64_t steps, int64_t num_samples) {
  constexpr int64_t kTimes = 20, kFewestSteps = 50, kMostSteps = 600;
  constexpr int64_t kPassesOfAStep = 3;  // forward, and twice that backward; an evaluation is one forward
  if (settings.eval.interval) return *settings.eval.interval;
  const train::TrainSettings& t = settings.train;
  const int64_t samples = std::min(num_samples, settings.eval.max_iters * t.micro_batch_size);
  const int64_t cheap = kTimes * samples / (kPassesOfAStep * t.global_batch_size);
  return std::clamp(std::max(steps > 0 ? steps / kTimes : kMostSteps, cheap), kFewestSteps, kMostSteps);
}

std::string unkept_best(const Settings& settings, int64_t steps, int64_t num_held_out) {
  const int64_t saved = settings.train.save_interval.value_or(0);
  if (!settings.save.keep_best || saved == 0 || (steps > 0 && saved >= steps)) return "";
  if (num_held_out == 0)  // with rewards, that is the default of settings that nobody gave
    return settings.task == Learning::rewards
               ? ""
               : "save.keep_best compares evaluations, and nothing is held out; name a file with data.val_data_path";
  const int64_t evaluated = evaluation_interval(settings, steps, num_held_out);
  if (steps == 0 || saved / std::gcd(saved, evaluated) <= (steps - 1) / evaluated) return "";  // up to their multiple
  return fmt::format(
      "save.keep_best keeps a step that is both saved and evaluated, and before the last there is none; take {}",
      evaluated < steps ? fmt::format("train.save_interval {} or a multiple", evaluated)
                        : fmt::format("eval.interval {}", saved));
}

optim::LrSchedule lr_schedule(const Settings& settings, int64_t steps) {
  return {.peak = scaled_lr(settings),
          .min = lowest_lr(settings),
          .warmup_steps = warmup_steps(settings),
          .max_steps = steps,
          .decay = settings.train.lr_decay,
          .settings = settings.lr_schedule};
}

void check_model(const Settings& settings, const model::ModelConfig& config) {
  const plan::StepRequest request = step_request(settings, config, 0, static_cast<int>(world_size(settings)));
  const model::Model model = build_run_model(settings, config, request);
  if (settings.accelerator == engine::Accelerator::cuda) engine::check_gpu(model, request, settings.engine.poison);
  plan::plan_without_lists(model, request);
}

int64_t plan_host(const Settings& settings) {
  at::set_num_threads(threads_of_a_rank(settings));  // attention's scratch is planned for each
  const model::ModelConfig config = model::config_of(settings.model);
  schedule::pipeline_schedule(settings.pipeline.schedule);  // refuses names that do not exist, without a pipeline too
  check_model(settings, config);
  const HostBytes bytes = host_bytes(settings, config);
  if (settings.accelerator == engine::Accelerator::cuda) return bytes.host;
  check_save_copies(bytes, world_size(settings) / settings.num_nodes);
  return bytes.planned;
}

void check_offload_disk(const Settings& settings) {
  if (!settings.offload.any() && !settings.offload.fit) return;
  const int64_t bytes = host_bytes(settings, model::config_of(settings.model)).disk;
  if (bytes == 0) return;
  std::error_code ignored;
  const bool is_there = settings.offload.path || fs::is_directory(settings.out_dir, ignored);
  const fs::path folder = is_there ? offload_path(settings) : fs::path(settings.out_dir);
  if (const auto refusal = is_there ? schedule::check_offload_folder(folder.string()) : std::nullopt)
    throw UsageError(refusal->headline + "; " + refusal->hint);
  if (!settings.overwrite) engine::require_offload_room(folder, bytes);  // what overwrite removes makes room
}

}  // namespace trireme::train
