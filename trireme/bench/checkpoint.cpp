#include <ATen/ATen.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/stopwatch.h"
#include "trireme/base/text.h"
#include "trireme/bench/commands.h"
#include "trireme/bench/disk.h"
#include "trireme/bench/measure.h"
#include "trireme/checkpoint/save_job.h"
#include "trireme/comm/collective.h"
#include "trireme/machine/limits.h"
#include "trireme/settings/parse.h"
#include "trireme/train/checkpointing.h"
#include "trireme/train/session.h"

namespace trireme::bench {
namespace {
namespace fs = std::filesystem;

constexpr double kGiB = 1024.0 * 1024 * 1024;

fs::path folder_of(const Settings& settings, const launch::RankEnvironment& environment) {
  return fs::path(settings.out_dir) /
         ("checkpoint-" + (environment.job_id.empty() ? std::to_string(getpid()) : environment.job_id));
}

// A folder below out_dir that all ranks know and rank 0 removes, also after errors.
class TemporaryFolder {
 public:
  TemporaryFolder(fs::path path, bool owner) : path_(std::move(path)), owner_(owner) {
    if (owner_) fs::create_directories(path_);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    if (owner_) fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
  bool owner_;
};

// A load takes the master weights from the optimizer's files and does not read the model's files.
int64_t loaded_bytes(const fs::path& folder) {
  int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder))
    if (!entry.path().filename().string().starts_with("model"))
      bytes += static_cast<int64_t>(fs::file_size(entry.path()));
  return bytes;
}

struct Times {
  std::vector<double> save, load, stall, beside, write, as_dd, read;
  int64_t bytes = 0, loaded_bytes = 0, copied_bytes = 0;
  // Figures of the worst round: memory growth of the rank that grows most while saving, memory growth of all ranks
  // while loading, bytes sent while saving.
  int64_t save_growth = 0, load_growth = 0, sent_bytes = 0;
};

int64_t sent_bytes(const comm::Communicator& world) {
  int64_t bytes = 0;
  for (int i = 0; i <= static_cast<int>(comm::Operation::barrier); ++i)
    bytes += world.traffic(static_cast<comm::Operation>(i)).bytes;
  return bytes;
}

int64_t bytes_of(std::span<const engine::GroupState> copy) {
  size_t bytes = 0;
  for (const engine::GroupState& g : copy) {
    bytes += g.master.nbytes();
    for (const engine::OptimizerTensor& state : g.optimizer) bytes += state.tensor.nbytes();
  }
  return static_cast<int64_t>(bytes);
}

class CheckpointBench {
 public:
  CheckpointBench(const Settings& settings, const launch::RankEnvironment& environment)
      : settings_(settings), folder_(folder_of(settings, environment), environment.global_rank == 0) {
    settings_.out_dir = folder_.path().string();
    settings_.save.mode = checkpoint::SaveMode::async;  // plans memory for the copy
    settings_.save.keep_last = 0;
    s_ = train::make_session(settings_, environment);
    s_->engine->initialize(static_cast<uint64_t>(settings_.seed));
    // Moments are random, as after some steps: a disk may write zeros faster than other data.
    for (const engine::GroupState& g : s_->engine->state())
      for (const engine::OptimizerTensor& state : g.optimizer) at::Tensor(state.tensor).uniform_(0, 1e-6);
  }

  bool is_first_rank() const { return s_->is_first_rank(); }
  comm::Communicator& world() { return s_->world(); }
  std::string shape() const {
    return fmt::format("{}, {:.2f} M parameters, {}", s_->model.config.name,
                       static_cast<double>(s_->model.config.num_parameters()) / 1e6,
                       base::plural(s_->environment.world_size, "rank"));
  }

  Times run(int64_t repeats) {
    Times t;
    Progress progress("bench checkpoint", is_first_rank());
    for (int64_t i = 1; i <= repeats; ++i) {
      progress.step(i, repeats, "save and load");
      const checkpoint::SaveResult saved = save(i, t);
      t.bytes = saved.bytes;
      t.loaded_bytes = loaded_bytes(saved.path);
      evict();
      load(saved.path, t);
      remove(saved.path);
      remove(save_beside(repeats + i, t).path);
      plain_round(t);
    }
    return t;
  }

 private:
  template <class Work>
  double seconds_of(Work work) {
    s_->world().barrier()->wait();
    const base::Stopwatch watch;
    work();
    s_->world().barrier()->wait();
    return watch.seconds();
  }

  train::RunState state_at(int64_t step) const { return {.step = step, .settings_yaml = to_yaml(settings_)}; }

  int64_t over_ranks(int64_t mine, comm::ReduceOp op) {
    at::Tensor value = at::full({1}, mine, at::kLong);
    s_->world().all_reduce(value, value, {.op = op})->wait();
    return value.item<int64_t>();
  }

  checkpoint::SaveResult save(int64_t step, Times& t) {
    checkpoint::SaveResult saved;
    MemoryGrowth memory;
    const int64_t sent = sent_bytes(world());
    t.save.push_back(
        seconds_of([&] { saved = train::save_run(*s_->engine, s_->model, settings_, state_at(step), s_->world()); }));
    const int64_t sent_now = sent_bytes(world()) - sent;
    t.save_growth = std::max(t.save_growth, over_ranks(memory.growth(), comm::ReduceOp::max));
    t.sent_bytes = std::max(t.sent_bytes, over_ranks(sent_now, comm::ReduceOp::sum));
    return saved;
  }

  // Training waits only for the copy and while ranks agree: that is the stall.
  checkpoint::SaveResult save_beside(int64_t step, Times& t) {
    std::vector<engine::GroupState> copy;
    std::unique_ptr<checkpoint::SaveJob> job;
    double stall = seconds_of([&] {
      copy = s_->engine->copy_state();
      job = std::make_unique<checkpoint::SaveJob>(
          train::save_request(copy, s_->engine->plan(), settings_, state_at(step)), s_->world(),
          checkpoint::SaveJob::Options{.background = true});
    });
    const base::Stopwatch watch;
    double agreeing = 0;
    while (!job->committed()) {
      while (!job->idle()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      agreeing += seconds_of([&] { job->advance(); });
    }
    t.beside.push_back(watch.seconds() - agreeing);
    t.stall.push_back(stall + agreeing);
    t.copied_bytes = over_ranks(bytes_of(copy), comm::ReduceOp::sum);
    return job->result();
  }

  void load(const fs::path& path, Times& t) {
    MemoryGrowth memory;
    t.load.push_back(seconds_of([&] { train::load_run(*s_->engine, s_->model, path, s_->world()); }));
    t.load_growth = std::max(t.load_growth, over_ranks(memory.growth(), comm::ReduceOp::sum));
  }

  void remove(const fs::path& path) {
    if (is_first_rank()) fs::remove_all(path);
  }

  // Every rank writes and reads its share in a file of its own.
  void plain_round(Times& t) {
    const fs::path file = folder_.path() / fmt::format("plain-{}", s_->environment.global_rank);
    const int64_t share = t.bytes / s_->environment.world_size;
    t.write.push_back(seconds_of([&] { write_plainly(file, share); }));
    evict();
    t.read.push_back(seconds_of([&] { read_plainly(file); }));
    fs::remove(file);
    t.as_dd.push_back(seconds_of([&] {
      if (is_first_rank()) write_as_dd(file, t.bytes);
    }));
    fs::remove(file);
  }

  void evict() {
    s_->world().barrier()->wait();
    if (is_first_rank()) drop_caches(folder_.path());
    s_->world().barrier()->wait();
  }

  Settings settings_;
  TemporaryFolder folder_;
  std::unique_ptr<train::Session> s_;
};

Row row(const std::string& name, const std::string& shape, const std::vector<double>& seconds, int64_t bytes,
        const std::string& limit) {
  Row r{.name = name, .shape = shape, .unit = "GiB/s", .limit = limit};
  set_times(r, seconds, static_cast<double>(bytes) / kGiB);
  return r;
}

// The fastest round is what the disk can do.
Limit best(const std::string& name, const std::vector<double>& seconds, int64_t bytes) {
  return {name, static_cast<double>(bytes) / kGiB / quantile(seconds, 0), "GiB/s"};
}

}  // namespace

// A writer may make the folder anew until its process ends, so the folder has to stay away for a while.
void remove_checkpoint_folder(const Settings& settings, const launch::RankEnvironment& environment) {
  constexpr int kMostLooks = 100, kQuietLooks = 10;
  const fs::path folder = folder_of(settings, environment);
  std::error_code ignored;
  for (int look = 0, quiet = 0; look < kMostLooks && quiet < kQuietLooks; ++look) {
    quiet = fs::exists(folder, ignored) ? 0 : quiet + 1;
    fs::remove_all(folder, ignored);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

int bench_checkpoint(const Settings& settings, const launch::RankEnvironment& environment, const std::string& command) {
  CheckpointBench bench(settings, environment);
  const Times t = bench.run(settings.bench.quick ? 2 : 5);
  bench.world().barrier()->wait();
  // Ranks that share a core share its copying rate.
  const int copying = std::min(environment.world_size, static_cast<int>(std::thread::hardware_concurrency()));
  const double copied = machine::measure_copy(1).best() / 2 / kGiB * copying;
  if (!bench.is_first_rank()) return 0;
  Report report = new_report("checkpoint", command);
  const std::string memory = "copy in memory, bytes copied by all ranks", write = "write() and fsync, plain files",
                    as_dd = "dd bs=4M conv=fsync, one rank", read = "read(), plain files";
  report.limits = {{memory, copied, "GiB/s"},
                   best(write, t.write, t.bytes),
                   best(as_dd, t.as_dd, t.bytes),
                   best(read, t.read, t.bytes)};
  const std::string shape = fmt::format("{}, {}", bench.shape(), base::human_bytes(t.bytes));
  const std::string load_shape = fmt::format("{}, {}", bench.shape(), base::human_bytes(t.loaded_bytes));
  const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  report.rows = {row("save", shape, t.save, t.bytes, write),
                 row("load", load_shape, t.load, t.loaded_bytes, read),
                 row("save beside training: the stall", shape, t.stall, t.copied_bytes, memory),
                 row("save beside training: the rest", shape, t.beside, t.bytes, write),
                 row("plain write", shape, t.write, t.bytes, memory),
                 row("plain write as dd", shape, t.as_dd, t.bytes, memory),
                 row("plain read", shape, t.read, t.bytes, memory)};
  report.rows[0].values = {{"MiB grown", mib(t.save_growth)}, {"MiB sent", mib(t.sent_bytes)}};
  report.rows[1].values = {{"MiB grown", mib(t.load_growth)}};
  report.rows[2].values = {{"% of save", 100 * report.rows[2].median_seconds / report.rows[0].median_seconds}};
  deliver(report, settings);
  return 0;
}

}  // namespace trireme::bench
