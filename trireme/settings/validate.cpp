#include "trireme/settings/validate.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>
#include <string>

#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/config/problems.h"
#include "trireme/schedule/pipeline.h"
#include "trireme/settings/derived.h"

namespace trireme {
namespace {

constexpr int64_t kMostRanks = 100'000;
constexpr int64_t kMostMicroBatches = 100'000;  // of a rank and step, whose actions are a list

void check_copies(const Settings& settings, const MeshShape& mesh, config::Problems& problems) {
  const std::string_view name = config::name_of(settings.strategy);
  const bool left_open = !settings.mesh.replicate && !settings.mesh.shard;
  if (settings.strategy == plan::Strategy::no_shard) {
    if (mesh.shard == 1) return;
    problems.add(fmt::format("no_shard keeps all weights on every rank, but mesh.shard is {}", mesh.shard), {},
                 "take strategy full_shard, or mesh.replicate instead of mesh.shard");
  } else if (!is_hybrid(settings.strategy)) {
    if (mesh.replicate == 1) return;
    problems.add(
        fmt::format("{} keeps one copy of the state over all ranks, but mesh.replicate is {}", name, mesh.replicate),
        {},
        fmt::format("take strategy {}, or leave mesh.replicate and mesh.shard at auto",
                    settings.strategy == plan::Strategy::full_shard ? "hybrid_shard" : "hybrid_shard_zero2"));
  } else if (left_open && settings.num_nodes == 1) {
    problems.add(fmt::format("{} on one machine cannot tell how many copies of the weights to keep", name), {},
                 fmt::format("give mesh.replicate, for instance 2, or mesh.shard; {} keeps one copy",
                             config::name_of(plan::on_one_copy(settings.strategy))));
  } else if (mesh.replicate == 1) {
    problems.add(fmt::format("{} keeps several copies of the weights, but mesh.replicate comes to 1", name), {},
                 fmt::format("take strategy {}, or a mesh.replicate above 1",
                             config::name_of(plan::on_one_copy(settings.strategy))));
  }
}

void check_pipeline(const Settings& settings, const MeshShape& mesh, config::Problems& problems) {
  if (mesh.pp == 1) return;  // without a pipeline, pipeline.* does not matter
  const schedule::PipelineSettings& pipeline = settings.pipeline;
  const int64_t stages = mesh.pp * stages_per_rank(settings, mesh);
  const auto& layers = settings.model.num_hidden_layers;
  if (layers && stages > *layers + 2)
    problems.add(
        fmt::format("a pipeline of {} cannot be cut from {} (embedding, {}, head)", base::plural(stages, "stage"),
                    base::plural(*layers + 2, "unit"), base::plural(*layers, "block")),
        {}, fmt::format("mesh.pp x the stages on each rank must not exceed {}", *layers + 2));
  if (pipeline.split && static_cast<int64_t>(pipeline.split->size()) != stages) {
    problems.add(fmt::format("pipeline.split names {}, but the pipeline has {}",
                             base::plural(static_cast<int64_t>(pipeline.split->size()), "stage"), stages),
                 {}, fmt::format("give {} numbers: mesh.pp {} x {} on each rank", stages, mesh.pp, stages / mesh.pp));
  } else if (pipeline.split && layers) {
    const int64_t sum = std::accumulate(pipeline.split->begin(), pipeline.split->end(), int64_t{0});
    if (sum != *layers + 2)
      problems.add(fmt::format("pipeline.split adds up to {}, but the model has {}", sum, *layers + 2), {},
                   fmt::format("units are the embedding, {} and the head", base::plural(*layers, "block")));
  }
  const train::TrainSettings& train = settings.train;
  const schedule::PipelineSchedule* schedule = schedule::find_pipeline_schedule(pipeline.schedule);
  if (schedule == nullptr || train.global_batch_size % train.micro_batch_size != 0) return;
  problems.add_if(schedule::check_rounds(*schedule, {.ranks = mesh.pp,
                                                     .data_ranks = mesh.data_parallel_ranks(),
                                                     .micro_batches = train.global_batch_size / train.micro_batch_size,
                                                     .micro_batch_size = train.micro_batch_size}));
}

void check_sequence(const Settings& settings, const MeshShape& mesh, config::Problems& problems) {
  if (settings.mesh.sequence_parallel && mesh.tp == 1)
    problems.add("mesh.sequence_parallel shares tokens among the ranks of mesh.tp, which is 1", {},
                 "set mesh.tp above 1; mesh.cp shares a sequence without tensor parallelism");
  const std::optional<int64_t> sequence =
      settings.train.max_seq_length ? settings.train.max_seq_length : settings.model.max_position_embeddings;
  if (!sequence) return;
  const bool ring = settings.mesh.context == model::Context::ring;
  const int64_t pieces = mesh.cp == 1 ? 1 : ring ? 2 * mesh.cp : mesh.cp;
  if (*sequence % pieces != 0) {
    problems.add(fmt::format("{} cannot share a sequence of {} tokens: mesh.context {} cuts it into {} equal pieces",
                             base::plural(mesh.cp, "rank"), *sequence, config::name_of(settings.mesh.context), pieces),
                 {}, fmt::format("train.max_seq_length {} fits", base::near_multiples(*sequence, pieces)));
    return;
  }
  const int64_t tokens = settings.train.micro_batch_size * *sequence / mesh.cp;
  if (settings.mesh.sequence_parallel) problems.add_if(plan::check_sequence_parallel(tokens, mesh.tp));
}

void check_mesh(const Settings& settings, const MeshShape& mesh, int64_t world_size, config::Problems& problems) {
  const int64_t unit = mesh.pp * mesh.cp * mesh.tp;
  if (!settings.mesh.replicate && !settings.mesh.shard && world_size % unit != 0)
    problems.add(fmt::format("mesh.pp {} x mesh.cp {} x mesh.tp {} takes a multiple of {}, but {} start", mesh.pp,
                             mesh.cp, mesh.tp, base::plural(unit, "rank"), base::plural(world_size, "rank")),
                 {}, fmt::format("start {} ranks, or change these sizes", base::near_multiples(world_size, unit)));
  else if (mesh.product() != world_size)
    problems.add(fmt::format("a mesh of pp {} x replicate {} x shard {} x cp {} x tp {} is {}, but {} start", mesh.pp,
                             mesh.replicate, mesh.shard, mesh.cp, mesh.tp, base::plural(mesh.product(), "rank"),
                             base::plural(world_size, "rank")),
                 {}, "set devices to the product, or leave mesh.replicate and mesh.shard at auto");
  check_copies(settings, mesh, problems);
}

void check_micro_batches(const Settings& settings, int64_t world_size, config::Problems& problems) {
  const train::TrainSettings& train = settings.train;
  const int64_t count = accumulation(settings, world_size);
  if (count <= kMostMicroBatches) return;
  problems.add(
      fmt::format("a step of {} micro-batches on each rank is too long a list of actions", base::human_count(count)),
      {},
      fmt::format("train.global_batch_size {} / train.micro_batch_size {} may be {} on each data-parallel rank: "
                  "raise train.micro_batch_size",
                  train.global_batch_size, train.micro_batch_size, base::human_count(kMostMicroBatches)));
}

// Refuses what works on processors only.
void check_accelerator(const Settings& settings, int64_t world_size, config::Problems& problems) {
  const comm::Backend backend = settings.comm.backend;
  if (settings.accelerator == engine::Accelerator::cpu) {
    if (backend == comm::Backend::nccl)
      problems.add("backend nccl works between GPUs only", {},
                   "comm.backend nccl needs accelerator cuda; ranks on processors use auto, shm, gloo or mpi");
    if (settings.engine.cuda_graph)
      problems.add("processors have no CUDA graphs", {}, "engine.cuda_graph needs accelerator cuda");
    return;
  }
  if (world_size > 1 && backend != comm::Backend::automatic && backend != comm::Backend::nccl &&
      backend != comm::Backend::dry_run)
    problems.add(fmt::format("backend {} cannot read a GPU's memory", config::name_of(backend)), {},
                 "accelerator cuda needs comm.backend auto or nccl");
  if (world_size > 1 && settings.comm.tls.value_or(false))
    problems.add("messages between GPUs are not encrypted", {},
                 "comm.tls needs accelerator cpu; otherwise keep the ranks inside a network you trust");
  if (world_size > 1 && settings.comm.compression != comm::Compression::none)
    problems.add("messages between GPUs are not compressed", {}, "comm.compression bf16 needs accelerator cpu");
  if (!optim::runs_on_gpu(settings.optimizer.name))
    problems.add(fmt::format("the optimizer {} computes on processors only", config::name_of(settings.optimizer.name)),
                 {}, "accelerator cuda needs another optimizer: AdamW, Adam, SGD or Lion");
  if (const model::NumberFormat format = number_format(settings);
      format == model::NumberFormat::fp16_mixed || model::has_narrow_weights(format))
    problems.add(fmt::format("precision {} is not built for GPUs yet", config::name_of(format)), {},
                 "accelerator cuda takes precision 32-true, bf16-mixed, fp8-mixed and 64-true");
  else if (model::has_narrow_gradients(settings.precision, format) ||
           settings.precision.reduce == model::GradientDtype::fp32)
    problems.add("a GPU's gradients travel in the dtype of its units and are summed in fp32", {},
                 "precision.reduce and precision.gradients other than auto need accelerator cpu");
  if (settings.eval.max_new_tokens)
    problems.add("sample replies are written on processors only", {},
                 "leave eval.max_new_tokens out, and give a checkpoint to trireme generate");
  if (settings.engine.poison)
    problems.add("a GPU's memory cannot be poisoned", {}, "engine.poison needs accelerator cpu");
  if (settings.engine.cuda_graph && (settings.mesh.tp.value_or(1) > 1 || settings.mesh.cp.value_or(1) > 1))
    problems.add("ranks of mesh.tp and mesh.cp meet inside computations, which CUDA graphs do not hold", {},
                 "engine.cuda_graph needs mesh.tp 1 and mesh.cp 1");
}

// Rounded up to two digits, so that the number works when it is typed.
std::string at_least_two_digits(double value) {
  const double unit = std::pow(10.0, std::floor(std::log10(value)) - 1);
  return fmt::format("{:.2g}", std::ceil(value / unit) * unit);
}

// A half below 2^-25 is 0. A step adds (1 - beta2) g^2 to a second moment of 0, and where that vanishes, nothing is
// ever added up. The update is then the first moment over eps, so an eps below such a g makes steps larger than the
// rate. Adagrad adds g^2 itself. Its sum also stops growing in halves, so no eps mends it.
void check_half_moments(const Settings& settings, config::Problems& problems) {
  constexpr double kVanishes = 0x1p-25;
  constexpr double kBeta2 = 0.999;  // the default of both rules
  const optim::OptimizerSettings& optimizer = settings.optimizer;
  if (number_format(settings) != model::NumberFormat::fp16_true) return;
  if (optimizer.name == optim::Rule::adagrad)
    problems.add("precision 16-true keeps Adagrad's sums of squares in halves, where small ones vanish", {},
                 "take precision bf16-true or 16-mixed, or another optimizer");
  if (optimizer.name != optim::Rule::adamw && optimizer.name != optim::Rule::adam) return;
  const double beta2 = optimizer.betas ? (*optimizer.betas)[1] : kBeta2;
  const double least_eps = std::sqrt(kVanishes / (1 - beta2));
  if (optimizer.eps.value_or(0) >= least_eps) return;
  const std::string least = at_least_two_digits(least_eps);
  problems.add(
      fmt::format("precision 16-true keeps second moments in halves, where those of gradients below {} vanish", least),
      {}, fmt::format("set optimizer.eps to at least {}, or take precision bf16-true or 16-mixed", least));
}

void check_training(const Settings& settings, config::Problems& problems) {
  if (settings.checkpoint.base == checkpoint::BaseIn::copy && !settings.lora.r && !settings.lora.initial_adapter)
    problems.add("checkpoint.base copy adds the base to checkpoints of adapters, and this run trains all weights", {},
                 "leave it out: every checkpoint of this run holds the whole model");
  const train::TrainSettings& train = settings.train;
  const double lr = scaled_lr(settings);
  optim::check_schedule(train.lr_decay, settings.lr_schedule, problems);
  if (lowest_lr(settings) > lr && optim::ends_at_min_lr(train.lr_decay))
    problems.add(fmt::format("the learning rate cannot fall from {} to {}", base::format_number(lr),
                             base::format_number(lowest_lr(settings))),
                 {},
                 "train.min_lr must not exceed optimizer.lr, scaled by optimizer.lr_scaling; train.lr_decay constant "
                 "keeps it level");
  const auto check_below = [&](const char* key, double rate) {
    if (rate > lr)
      problems.add(fmt::format("{} {} is above the highest learning rate, {}", key, base::format_number(rate),
                               base::format_number(lr)),
                   {}, fmt::format("{} must not exceed optimizer.lr, scaled by optimizer.lr_scaling", key));
  };
  check_below("lr_schedule.warmup_from", settings.lr_schedule.warmup_from);
  check_below("lr_schedule.cycle_min_lr", settings.lr_schedule.cycle_min_lr.value_or(0));
  const model::ModelSettings& model = settings.model;
  if (train.max_seq_length && model.max_position_embeddings && *train.max_seq_length > *model.max_position_embeddings)
    problems.add(fmt::format("sequences of {} tokens do not fit a model made for {}", *train.max_seq_length,
                             *model.max_position_embeddings),
                 {}, "train.max_seq_length must not exceed model.max_position_embeddings");
}

}  // namespace

void validate(const Settings& settings, int64_t world_size) {
  config::Problems problems;
  if (world_size > kMostRanks) {
    problems.add(fmt::format("{} ranks are too many", base::human_count(world_size)), {},
                 fmt::format("devices x num_nodes must be at most {}", base::human_count(kMostRanks)));
    problems.throw_if_any();
  }
  const MeshShape mesh = mesh_shape(settings, world_size);
  check_mesh(settings, mesh, world_size, problems);
  const bool divides = settings.strategy != plan::Strategy::no_shard;
  problems.add_if(plan::check_offload(settings.strategy, divides ? mesh.shard * mesh.cp : 1,
                                      mesh.replicate * mesh.shard * mesh.cp, settings.offload));
  // If the mesh does not fit the ranks, the number of data-parallel ranks is unknown.
  if (problems.empty()) {
    check_pipeline(settings, mesh, problems);
    check_sequence(settings, mesh, problems);
    check_micro_batches(settings, world_size, problems);
  }
  check_accelerator(settings, world_size, problems);
  Settings copy = settings;
  const config::Table table = declare(copy);
  for (const config::Section& section : table.sections())
    if (section.check) section.check(problems);
  problems.add_if(plan::check_gradient_dtypes(model::has_narrow_gradients(settings.precision, number_format(settings)),
                                              settings.precision.reduce == model::GradientDtype::fp32,
                                              settings.accumulation));
  const model::NumberFormat format = number_format(settings);
  const bool is_narrow = model::has_narrow_weights(format) || model::has_narrow_gradients(settings.precision, format);
  problems.add_if(optim::check_storage(settings.optimizer.name, is_narrow                                  ? 2
                                                                : format == model::NumberFormat::fp64_true ? 8
                                                                                                           : 4));
  problems.add_if(
      optim::check_in_backward(settings.optimizer.in_backward, settings.train.max_norm, scales_loss(settings)));
  check_half_moments(settings, problems);
  check_training(settings, problems);
  problems.throw_if_any();
}

void validate_backend(const Settings& settings, int64_t world_size) {
  config::Problems problems;
  comm::check_computes(settings.comm, world_size, problems);
  problems.throw_if_any();
}

void validate_shown_ranks(const Settings& settings, int64_t world_size) {
  const launch::LaunchSettings& launch = settings.launch;
  if (!launch.log_ranks || launch.rdzv_endpoint) return;  // how many ranks an elastic job has, its machines know
  config::Problems problems;
  for (const int64_t rank : *launch.log_ranks)
    if (rank >= world_size)
      problems.add(fmt::format("launch.log_ranks names rank {}, and there {}", rank,
                               world_size == 1 ? "is rank 0 alone" : fmt::format("are ranks 0 to {}", world_size - 1)),
                   {}, "name ranks that there are, or leave it out");
  problems.throw_if_any();
}

void validate_run_length(const Settings& settings) {
  config::Problems problems;
  if (settings.model.name.empty())
    problems.add("no model is named", {},
                 "name a folder with a config.json behind the command, or for new weights a shape such as llama-5m");
  train::check_run_length(settings.train, problems);
  problems.throw_if_any();
}

}  // namespace trireme
