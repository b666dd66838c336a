#include "trireme/config/validate.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/config/choices.h"
#include "trireme/config/learning_rate.h"
#include "trireme/config/mesh_shape.h"
#include "trireme/config/problems.h"
#include "trireme/config/validate_parallel.h"

namespace trireme::config {

namespace {

constexpr int64_t kMostRanks = 100'000;

void check_batch(const Settings& settings, Problems& problems) {
  const int64_t global = settings.train.global_batch_size;
  const int64_t micro = settings.train.micro_batch_size;
  if (global % micro == 0) return;  // ranks that find no micro-batch left wait for the others
  problems.add(fmt::format("a global batch of {} is not made of micro-batches of {}", global, micro), {},
               fmt::format("train.global_batch_size must be a multiple of train.micro_batch_size: {} fits",
                           near_multiples(global, micro)));
}

// Ranks that share memory send nothing that could be compressed; mpi and nccl have no compression yet.
void check_compression(const Settings& settings, Problems& problems) {
  if (settings.comm.compression == Compression::none) return;
  const Backend backend = settings.comm.backend;
  if (backend == Backend::automatic || backend == Backend::gloo || backend == Backend::dry_run) return;
  problems.add(fmt::format("backend {} does not compress gradients", name_of(backend)), {},
               "comm.compression bf16 needs comm.backend gloo (or auto, where it holds between machines)");
}

// A setting that asks for protection must not be taken without giving it.
void check_tls(const Settings& settings, Problems& problems) {
  const Backend backend = settings.comm.backend;
  if (!settings.comm.tls.value_or(false) || (backend != Backend::mpi && backend != Backend::nccl)) return;
  problems.add(fmt::format("backend {} sends in the clear", name_of(backend)), {},
               "comm.tls needs comm.backend gloo (or auto, where it holds between machines); otherwise keep what ranks "
               "send inside a network you trust, or a tunnel (WireGuard, IPsec)");
}

// Ranks with a GPU each talk over NCCL alone; what has been built for the processor only is refused.
void check_accelerator(const Settings& settings, const MeshShape& mesh, int64_t world_size, Problems& problems) {
  const Backend backend = settings.comm.backend;
  if (settings.accelerator == Accelerator::cpu) {
    if (backend == Backend::nccl)
      problems.add("backend nccl moves what lies on GPUs only", {},
                   "comm.backend nccl needs accelerator cuda; ranks on processors talk over auto, shm, gloo or mpi");
    return;
  }
  if (world_size > 1 && backend != Backend::automatic && backend != Backend::nccl && backend != Backend::dry_run)
    problems.add(fmt::format("backend {} cannot reach what lies on a GPU", name_of(backend)), {},
                 "accelerator cuda needs comm.backend auto or nccl");
  if (world_size > 1 && settings.comm.tls.value_or(false))
    problems.add("what ranks on GPUs send is not sealed", {},
                 "comm.tls needs accelerator cpu; otherwise keep the ranks inside a network you trust");
  if (world_size > 1 && settings.comm.compression != Compression::none)
    problems.add("what ranks on GPUs send is not compressed", {}, "comm.compression bf16 needs accelerator cpu");
  if (mesh.cp > 1)
    problems.add("sequences cannot be divided among GPUs yet", {}, "mesh.cp above 1 needs accelerator cpu");
  if (settings.engine.poison)
    problems.add("memory of a GPU is not poisoned", {}, "engine.poison needs accelerator cpu");
}

// A setting that the chosen optimizer does not read must not be taken as if it did something.
void check_optimizer(const Settings& settings, Problems& problems) {
  const OptimizerSettings& o = settings.optimizer;
  const struct {
    bool given;
    const char* key;
    std::vector<std::string> readers;
  } rows[] = {{o.betas.has_value(), "betas", {"AdamW", "Adam", "Lion"}},
              {o.eps.has_value(), "eps", {"AdamW", "Adam"}},
              {o.momentum.has_value(), "momentum", {"SGD"}},
              {o.nesterov.has_value(), "nesterov", {"SGD"}}};
  for (const auto& row : rows)
    if (row.given && std::find(row.readers.begin(), row.readers.end(), o.name) == row.readers.end())
      problems.add(
          fmt::format("{} has no {}", o.name, row.key), {},
          fmt::format("optimizer.{} belongs to {}; leave it out, or say auto", row.key, base::join(row.readers, ", ")));
  if (o.nesterov.value_or(false) && o.name == "SGD" && o.momentum.value_or(0) == 0)
    problems.add("there is no momentum to look ahead along", {},
                 "optimizer.nesterov needs optimizer.momentum above 0, for instance 0.9");
}

void check_training(const Settings& settings, Problems& problems) {
  const TrainSettings& train = settings.train;
  const double lr = scaled_lr(settings);
  if (lowest_lr(settings) > lr && train.lr_decay != LrDecay::constant) {
    problems.add(fmt::format("the learning rate cannot fall from {} to {}", base::format_number(lr),
                             base::format_number(lowest_lr(settings))),
                 {},
                 "train.min_lr must not exceed optimizer.lr, as optimizer.lr_scaling scales it; train.lr_decay "
                 "constant keeps it level");
  }
  const DataSettings& data = settings.data;
  if (data.name != "Austen" && !data.train_data_path && !data.mixture) {
    problems.add(fmt::format("data {} needs a place to read from", data.name), {},
                 "give --data.train_data_path FILE-OR-FOLDER");
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
  if (world_size > kMostRanks) {
    problems.add(fmt::format("{} ranks are more than anybody has", base::human_count(world_size)), {},
                 fmt::format("devices x num_nodes must be at most {}", base::human_count(kMostRanks)));
    problems.throw_if_any();
  }
  const MeshShape mesh = mesh_shape(settings, world_size);
  check_mesh(settings, mesh, world_size, problems);
  // With a mesh that does not fit the ranks there is no number of data-parallel ranks to speak of.
  if (problems.empty()) check_parallel(settings, mesh, problems);
  check_accelerator(settings, mesh, world_size, problems);
  check_batch(settings, problems);
  check_compression(settings, problems);
  check_tls(settings, problems);
  check_optimizer(settings, problems);
  check_training(settings, problems);
  problems.throw_if_any();
}

void validate_backend(const Settings& settings, int64_t world_size) {
  const Backend backend = settings.comm.backend;
  Problems problems;
  if (backend == Backend::dry_run)
    problems.add("backend dry_run moves nothing between ranks, so that no result would be right", {},
                 "comm.backend dry_run is for plans (trireme explain ...); to compute take auto, shm, gloo or mpi");
  if (backend == Backend::threads && world_size > 1)
    problems.add("backend threads joins threads of one process, and ranks are processes of their own", {},
                 "comm.backend threads is for programs that use the library; here take auto, shm or gloo");
  problems.throw_if_any();
}

void validate_run_length(const Settings& settings) {
  const TrainSettings& train = settings.train;
  Problems problems;
  if (settings.model.name.empty())
    problems.add("no model is named", {},
                 "give one first, for instance 'trireme pretrain llama-5m', or a folder with a config.json");
  if (!train.max_steps && !train.max_tokens && !train.epochs && !train.max_time)
    problems.add("nothing says when to stop", {},
                 "give train.max_steps, train.max_tokens, train.epochs or train.max_time; "
                 "for instance --train.max_steps 1000");
  problems.throw_if_any();
}

int64_t accumulation(const Settings& settings, int64_t world_size) {
  const int64_t micro_batches = settings.train.global_batch_size / settings.train.micro_batch_size;
  const int64_t ranks = mesh_shape(settings, world_size).data_parallel_ranks();
  return (micro_batches + ranks - 1) / ranks;
}

}  // namespace trireme::config
