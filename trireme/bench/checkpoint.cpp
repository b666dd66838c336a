#include <ATen/ATen.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/bench/commands.h"
#include "trireme/bench/disk.h"
#include "trireme/bench/measure.h"
#include "trireme/config/report.h"
#include "trireme/ops/limits.h"
#include "trireme/train/checkpointing.h"
#include "trireme/train/session.h"

namespace trireme::bench {
namespace {
namespace fs = std::filesystem;

constexpr double kGiB = 1024.0 * 1024 * 1024;

// A folder below out_dir, known to all ranks, that rank 0 removes whatever happens.
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

// A load takes the master weights from the optimizer's files: it leaves the model's own alone.
int64_t loaded_bytes(const fs::path& folder) {
  int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder))
    if (!entry.path().filename().string().starts_with("model"))
      bytes += static_cast<int64_t>(fs::file_size(entry.path()));
  return bytes;
}

struct Times {
  std::vector<double> save, load, write, read;
  int64_t bytes = 0, loaded_bytes = 0;
};

class Bench {
 public:
  Bench(const config::Settings& settings, const launch::RankEnvironment& environment)
      : settings_(settings),
        folder_(fs::path(settings.out_dir) /
                    ("checkpoint-" + (environment.job_id.empty() ? std::to_string(getpid()) : environment.job_id)),
                environment.global_rank == 0) {
    settings_.out_dir = folder_.path().string();
    s_ = train::make_session(settings_, environment);
    s_->engine->initialize(static_cast<uint64_t>(settings_.seed));
    // Moments as after some steps: a disk may be quicker with zeros than with anything else.
    for (const engine::GroupState& g : s_->engine->state()) {
      g.exp_avg.uniform_(-1e-3, 1e-3);
      g.exp_avg_sq.uniform_(0, 1e-6);
    }
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
      const checkpoint::SaveResult saved = save(i, t.save);
      t.bytes = saved.bytes;
      t.loaded_bytes = loaded_bytes(saved.path);
      evict();
      t.load.push_back(seconds_of([&] { train::load_run(*s_->engine, s_->model, saved.path, s_->world()); }));
      plain_round(t);
      if (is_first_rank()) fs::remove_all(saved.path);
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

  checkpoint::SaveResult save(int64_t step, std::vector<double>& seconds) {
    train::RunState state{.step = step, .settings_yaml = config::to_yaml(settings_)};
    checkpoint::SaveResult saved;
    seconds.push_back(
        seconds_of([&] { saved = train::save_run(*s_->engine, s_->model, settings_, state, s_->world()); }));
    return saved;
  }

  // Every rank its share, in a file of its own.
  void plain_round(Times& t) {
    const fs::path file = folder_.path() / fmt::format("plain-{}", s_->environment.global_rank);
    const int64_t share = t.bytes / s_->environment.world_size;
    t.write.push_back(seconds_of([&] { write_plainly(file, share); }));
    evict();
    t.read.push_back(seconds_of([&] { read_plainly(file); }));
    fs::remove(file);
  }

  void evict() {
    s_->world().barrier()->wait();
    if (is_first_rank()) drop_caches(folder_.path());
    s_->world().barrier()->wait();
  }

  config::Settings settings_;
  TemporaryFolder folder_;
  std::unique_ptr<train::Session> s_;
};

Row row(const std::string& name, const std::string& shape, const std::vector<double>& seconds, int64_t bytes,
        const std::string& limit) {
  Row r{.name = name, .shape = shape, .unit = "GiB/s", .limit = limit};
  set_times(r, seconds, static_cast<double>(bytes) / kGiB);
  return r;
}

// The fastest round: what the disk can do.
Limit best(const std::string& name, const std::vector<double>& seconds, int64_t bytes) {
  return {name, static_cast<double>(bytes) / kGiB / quantile(seconds, 0), "GiB/s"};
}

}  // namespace

int bench_checkpoint(const config::Settings& settings, const launch::RankEnvironment& environment,
                     const std::string& command) {
  Bench bench(settings, environment);
  const Times t = bench.run(settings.bench.quick ? 2 : 5);
  bench.world().barrier()->wait();
  const double copied = ops::copy_bandwidth(1) / 2 / kGiB * environment.world_size;
  if (!bench.is_first_rank()) return 0;
  Report report = new_report("checkpoint", command);
  const std::string memory = "copy in memory, bytes copied by all ranks", write = "write() and fsync, plain files",
                    read = "read(), plain files";
  report.limits = {{memory, copied, "GiB/s"}, best(write, t.write, t.bytes), best(read, t.read, t.bytes)};
  const std::string shape = fmt::format("{}, {}", bench.shape(), base::human_bytes(t.bytes));
  const std::string load_shape = fmt::format("{}, {}", bench.shape(), base::human_bytes(t.loaded_bytes));
  report.rows = {row("save", shape, t.save, t.bytes, write), row("load", load_shape, t.load, t.loaded_bytes, read),
                 row("plain write", shape, t.write, t.bytes, memory),
                 row("plain read", shape, t.read, t.bytes, memory)};
  deliver(report, settings);
  return 0;
}

}  // namespace trireme::bench
