#include "trireme/config/validate.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/config/choices.h"
#include "trireme/config/mesh_shape.h"
#include "trireme/config/problems.h"

namespace trireme::config {

namespace {

// "{1, 2, 4, 8, 16}": the divisors of `number`, those in the middle left out when there are many.
std::string divisors_text(int64_t number) {
  std::vector<std::string> low, high;
  for (int64_t d = 1; d <= number / d; ++d) {
    if (number % d != 0) continue;
    low.push_back(fmt::format("{}", d));
    if (d != number / d) high.push_back(fmt::format("{}", number / d));
  }
  std::reverse(high.begin(), high.end());
  low.insert(low.end(), high.begin(), high.end());
  constexpr size_t kMost = 16;
  if (low.size() > kMost) {
    low.resize(kMost);
    low.emplace_back("...");
  }
  return fmt::format("{{{}}}", base::join(low, ", "));
}

// "60 or 72": the multiples of `unit` on both sides of `number`.
std::string near_multiples(int64_t number, int64_t unit) {
  const int64_t below = number / unit * unit;
  return below == 0 ? fmt::format("{}", unit) : fmt::format("{} or {}", below, below + unit);
}

void check_batch(const Settings& settings, const MeshShape& mesh, Problems& problems) {
  const int64_t global = settings.train.global_batch_size;
  const int64_t micro = settings.train.micro_batch_size;
  const int64_t ranks = mesh.data_parallel_ranks();
  if (global % micro != 0) {
    problems.add(fmt::format("a global batch of {} is not made of micro-batches of {}", global, micro), {},
                 fmt::format("train.global_batch_size must be a multiple of train.micro_batch_size x {}: {} fits",
                             base::plural(ranks, "rank"), near_multiples(global, micro * ranks)));
  } else if (global / micro % ranks != 0) {
    problems.add(
        fmt::format("{} cannot share a global batch of {} in micro-batches of {}", base::plural(ranks, "rank"), global,
                    micro),
        {},
        fmt::format("{} = ranks x accumulation x {} needs ranks in {}; with {}, train.global_batch_size {} fits",
                    global, micro, divisors_text(global / micro), base::plural(ranks, "rank"),
                    near_multiples(global, micro * ranks)));
  }
}

void check_mesh(const Settings& settings, const MeshShape& mesh, int64_t world_size, Problems& problems) {
  if (mesh.product() != world_size) {
    problems.add(fmt::format("a mesh of pp {} x replicate {} x shard {} x cp {} x tp {} is {}, but {} start", mesh.pp,
                             mesh.replicate, mesh.shard, mesh.cp, mesh.tp, base::plural(mesh.product(), "rank"),
                             base::plural(world_size, "rank")),
                 {}, "set devices to the product, or leave mesh.replicate and mesh.shard at auto");
  }
  if (settings.strategy == Strategy::no_shard && mesh.shard > 1) {
    problems.add(fmt::format("no_shard keeps all weights on every rank, but mesh.shard is {}", mesh.shard), {},
                 "take strategy full_shard, or mesh.replicate instead of mesh.shard");
  }
  if (settings.strategy == Strategy::full_shard && mesh.replicate > 1) {
    problems.add(
        fmt::format("full_shard with {} copies of the weights is hybrid_shard, which is not built yet", mesh.replicate),
        {}, "leave mesh.replicate at auto, or take strategy no_shard");
  }
}

void check_training(const Settings& settings, Problems& problems) {
  const TrainSettings& train = settings.train;
  if (train.min_lr > settings.optimizer.lr && train.lr_decay != LrDecay::constant) {
    problems.add(fmt::format("the learning rate cannot fall from {} to {}", base::format_number(settings.optimizer.lr),
                             base::format_number(train.min_lr)),
                 {}, "train.min_lr must not exceed optimizer.lr; train.lr_decay constant keeps it level");
  }
  const DataSettings& data = settings.data;
  if (data.name == "TextFiles" && !data.train_data_path) {
    problems.add("data TextFiles needs a place to read from", {}, "give --data.train_data_path FILE-OR-FOLDER");
  }
  const ModelSettings& model = settings.model;
  if (train.max_seq_length && model.max_position_embeddings && *train.max_seq_length > *model.max_position_embeddings) {
    problems.add(fmt::format("sequences of {} tokens do not fit a model made for {}", *train.max_seq_length,
                             *model.max_position_embeddings),
                 {}, "train.max_seq_length must not exceed model.max_position_embeddings");
  }
}

}  // namespace

int64_t world_size(const Settings& settings) { return settings.devices.value_or(1) * settings.num_nodes; }

void validate(const Settings& settings, int64_t world_size) {
  Problems problems;
  const MeshShape mesh = mesh_shape(settings, world_size);
  check_mesh(settings, mesh, world_size, problems);
  // With a mesh that does not fit the ranks there is no number of data-parallel ranks to speak of.
  if (problems.empty()) check_batch(settings, mesh, problems);
  check_training(settings, problems);
  problems.throw_if_any();
}

void validate_run_length(const Settings& settings) {
  const TrainSettings& train = settings.train;
  if (train.max_steps || train.max_tokens || train.epochs || train.max_time) return;
  Problems problems;
  problems.add("nothing says when to stop", {},
               "give train.max_steps, train.max_tokens, train.epochs or train.max_time; "
               "for instance --train.max_steps 1000");
  problems.throw_if_any();
}

int64_t accumulation(const Settings& settings, int64_t world_size) {
  return settings.train.global_batch_size / settings.train.micro_batch_size /
         mesh_shape(settings, world_size).data_parallel_ranks();
}

}  // namespace trireme::config
