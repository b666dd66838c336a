// `trireme bench calibrate`: measures what operations and collectives take on this machine, inside of training steps of
// small models of several shapes, and writes the hardware file that predictions read (costs/hardware.h).
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <tuple>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/base/log.h"
#include "trireme/base/named_file.h"
#include "trireme/base/processor.h"
#include "trireme/base/shared_library.h"
#include "trireme/base/stopwatch.h"
#include "trireme/base/text.h"
#include "trireme/bench/child.h"
#include "trireme/bench/commands.h"
#include "trireme/bench/disk.h"
#include "trireme/bench/machine.h"
#include "trireme/bench/measure.h"
#include "trireme/costs/hardware.h"
#include "trireme/engine/arena.h"
#include "trireme/machine/limits.h"
#include "trireme/ops/cuda/kernels.h"
#include "trireme/train/setup.h"

namespace trireme::bench {
namespace {

namespace fs = std::filesystem;

/// Shapes between which a prediction interpolates.
struct Shape {
  const char* model;
  int64_t hidden, mlp, heads, kv_heads, vocabulary, sequence, micro_batch, steps;
  std::vector<const char*> precisions = {"32-true", "bf16-mixed"};
  std::vector<const char*> words = {};  ///< further settings
};
const Shape kShapes[] = {
    {"llama-5m", 128, 384, 4, 4, 256, 64, 32, 12},      {"llama-5m", 256, 704, 4, 4, 256, 256, 4, 12},
    {"llama-5m", 256, 704, 4, 2, 4096, 128, 32, 4},     {"llama-5m", 512, 1408, 8, 4, 8192, 512, 2, 5},
    {"llama-5m", 768, 2048, 12, 12, 16384, 1024, 1, 4}, {"llama-5m", 1024, 2816, 16, 8, 2048, 256, 2, 6},
    {"gpt2", 384, 1536, 6, 6, 4096, 256, 4, 6},
};

const Shape kGpuShapes[] = {
    {"llama-5m", 512, 1408, 8, 8, 32000, 512, 32, 8, {"32-true", "bf16-mixed"}},
    {"llama-5m", 1024, 2816, 16, 4, 32000, 1024, 32, 8, {"bf16-mixed"}},
    {"llama-5m", 1024, 5632, 16, 2, 131072, 1024, 12, 8, {"bf16-mixed", "fp8-mixed"}},
    {"llama-5m", 2048, 5632, 32, 4, 32000, 2048, 6, 8, {"bf16-mixed", "fp8-mixed"}},
    {"llama-5m", 2048, 8192, 16, 4, 131072, 1024, 16, 6, {"bf16-mixed", "fp8-mixed"}},
    {"llama-5m", 4096, 14336, 32, 8, 32000, 4096, 1, 8, {"bf16-mixed", "fp8-mixed"}},
    {"llama-5m", 3072, 8192, 24, 8, 65536, 8192, 1, 6, {"bf16-mixed"}, {"--lora.r", "16", "--lora.dropout", "0"}},
    {"gpt2", 768, 3072, 12, 12, 50257, 1024, 16, 8, {"bf16-mixed"}},
};

std::vector<Shape> shapes_of(bool quick, bool on_gpu) {
  const std::vector<Shape> all = on_gpu ? std::vector<Shape>(std::begin(kGpuShapes), std::end(kGpuShapes))
                                        : std::vector<Shape>(std::begin(kShapes), std::end(kShapes));
  return quick ? std::vector<Shape>{all.front(), all.back()} : all;
}

bool is_on_gpu(const Settings& settings) { return settings.accelerator == engine::Accelerator::cuda; }

constexpr int64_t kMovedBytes = 1'000'000'000;  // what a "move" row is given for

struct Busy {
  int64_t ranks, threads;
};

std::vector<Busy> busy_ways(bool on_gpu) {
  if (on_gpu) return {{1, 1}};
  const int64_t cores = usable_cores();
  if (cores == 1) return {{1, 1}};
  return {{1, cores}, {cores, 1}};
}

std::vector<std::string> words_of(const Shape& shape, const Busy& busy, const char* precision, const Settings& settings,
                                  const fs::path& folder, const fs::path& json) {
  std::vector<std::string> words = {"bench", "train", shape.model};
  const std::pair<std::string, std::string> own[] = {
      {"model.hidden_size", std::to_string(shape.hidden)},
      {"model.intermediate_size", std::to_string(shape.mlp)},
      {"model.num_attention_heads", std::to_string(shape.heads)},
      {"model.num_key_value_heads", std::to_string(shape.kv_heads)},
      {"model.vocab_size", std::to_string(shape.vocabulary)},
      {"model.max_position_embeddings", std::to_string(shape.sequence)},
      {"model.num_hidden_layers", "2"},
      {"train.max_seq_length", std::to_string(shape.sequence)},
      {"train.micro_batch_size", std::to_string(shape.micro_batch)},
      {"devices", std::to_string(busy.ranks)},
      {"precision", precision},
      {"bench.warmup", settings.bench.quick ? "1" : "2"},
      {"bench.steps", settings.bench.quick ? "1" : std::to_string(shape.steps)},
      {"bench.operations", "true"},
      {"bench.json", json.string()},
      {"out_dir", folder.string()}};
  for (const auto& [key, value] : own) {
    words.push_back("--" + key);
    words.push_back(value);
  }
  if (is_on_gpu(settings))
    words.insert(words.end(), {"--accelerator", "cuda"});
  else
    words.insert(words.end(), {"--launch.threads_per_rank", std::to_string(busy.threads)});
  words.insert(words.end(), shape.words.begin(), shape.words.end());
  return words;
}

at::ScalarType dtype_named(const std::string& name) {
  return name == "bf16" ? at::kBFloat16 : name == "fp16" ? at::kHalf : name == "fp64" ? at::kDouble : at::kFloat;
}

using Json = nlohmann::ordered_json;

void add_operations(costs::Hardware& hardware, const Json& train, const Busy& busy) {
  for (const Json& row : train.at("operations")) {
    const int64_t m = base::whole_number(row.at("m")), n = base::whole_number(row.at("n")),
                  k = base::whole_number(row.at("k"));
    if (m == 0 || n == 0 || k == 0) continue;  // a rank that owns nothing of a group
    hardware.measured_operations.push_back({row.at("name").get<std::string>(), dtype_named(row.at("dtype")), busy.ranks,
                                            busy.threads, m, n, k, row.at("seconds").get<double>()});
  }
}

// Shapes that several models have in common are one row.
void join_rows(costs::Hardware& hardware) {
  std::map<std::tuple<std::string, at::ScalarType, int64_t, int64_t, int64_t, int64_t, int64_t>, std::vector<double>>
      all;
  for (const costs::MeasuredOperation& o : hardware.measured_operations)
    all[{o.name, o.dtype, o.ranks, o.threads, o.m, o.n, o.k}].push_back(o.seconds);
  hardware.measured_operations.clear();
  for (const auto& [key, seconds] : all) {
    const auto& [name, dtype, ranks, threads, m, n, k] = key;
    hardware.measured_operations.push_back({name, dtype, ranks, threads, m, n, k, quantile(seconds, 0.5)});
  }
}

// The shortest call of each collective; over shared buffers where they are timed, too, because training uses them.
void add_collectives(costs::Hardware& hardware, const Json& report, int64_t ranks) {
  std::map<std::pair<std::string, int64_t>, double> best;
  for (const Json& row : report.at("rows")) {
    const std::string name = row.at("name");
    if (!row.contains("values") || !row.at("values").contains("algbw GB/s")) continue;
    const double seconds = row.at("median_seconds");
    const auto bytes = static_cast<int64_t>(row.at("values").at("algbw GB/s").get<double>() * 1e9 * seconds + 0.5);
    const auto [place, is_new] = best.try_emplace({name == "send_receive" ? "send" : name, bytes}, seconds);
    if (!is_new) place->second = std::min(place->second, seconds);
  }
  std::string before;
  for (const auto& [key, seconds] : best) {  // by name, the shortest first
    if (key.first != before) hardware.measured_collectives.push_back({key.first, ranks, key.second, seconds});
    before = key.first;
  }
}

constexpr double kDisturbed = 0.08;

/// Third minus first quartile, as a share of the median.
double spread_of(const std::vector<double>& seconds) {
  return (quantile(seconds, 0.75) - quantile(seconds, 0.25)) / quantile(seconds, 0.5);
}

Json read_json(const fs::path& file) { return base::parse_json<Json>(base::read_file(file)); }

void measure_limits(costs::Hardware& hardware) {
  const int cores = static_cast<int>(usable_cores());
  hardware.peak.fp32 = 1e-12 * machine::register_loop_flops(at::kFloat, cores) / cores;
  hardware.peak.bf16 = 1e-12 * machine::register_loop_flops(at::kBFloat16, cores) / cores;
  hardware.peak.fp64 = 1e-12 * machine::register_loop_flops(at::kDouble, cores) / cores;
  hardware.memory_rate = 1e-9 * machine::measure_copy(cores).best() / cores;
  hardware.host_memory = 1e-9 * double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGE_SIZE));
}

/// Bytes a second that the GPU reads and writes in a copy of 1 GiB.
double copy_rate(const ops::cuda::Kernels& kernels) {
  constexpr int64_t kBytes = 1 << 30;
  constexpr int kRuns = 10;
  const at::Tensor from = at::zeros({kBytes}, at::TensorOptions().dtype(at::kByte).device(at::kCUDA));
  at::Tensor to = at::empty_like(from);
  to.copy_(from);
  kernels.mark();
  for (int i = 0; i < kRuns; ++i) to.copy_(from);
  kernels.mark();
  return 2.0 * double(kBytes) * kRuns / kernels.seconds_between_marks().front();
}

// Bytes in a second from the GPU to page-locked memory of its machine.
double host_rate(const ops::cuda::Kernels& kernels) {
  constexpr int64_t kBytes = int64_t{256} << 20;
  constexpr int kRuns = 4;
  const engine::MappedMemory host(kBytes);
  const engine::PageLock locked(host);
  const at::Tensor device = at::zeros({kBytes}, at::TensorOptions().dtype(at::kByte).device(at::kCUDA));
  const auto stream = kernels.copy_stream();
  const auto copy = [&] { stream->post(host.data(), device.const_data_ptr(), kBytes); };
  copy();
  kernels.synchronize();
  const base::Stopwatch watch;
  for (int i = 0; i < kRuns; ++i) copy();
  kernels.synchronize();
  return double(kBytes) * kRuns / watch.seconds();
}

costs::Hardware processors() {
  costs::Hardware hardware{.name = "this",
                           .about = fmt::format("{}, {}, measured {}", base::processor_name(),
                                                base::plural(usable_cores(), "core"), utc_now()),
                           .shares_cores = true};
  hardware.devices = usable_cores();
  hardware.share = {.product = 0.7, .product_half = 32, .attention = 0.3, .memory = 0.7};
  measure_limits(hardware);
  return hardware;
}

/// A known card's figures, its links among them, or for another card its memory and the rate of copies.
costs::Hardware gpu() {
  const ops::cuda::Kernels& kernels = ops::cuda_kernels();
  const std::string name = kernels.device_name();
  costs::Hardware hardware;
  if (const auto known = costs::hardware_of_device(name)) hardware = *known;
  if (hardware.name.empty()) {
    hardware.memory = 1e-9 * double(kernels.device_bytes());
    hardware.reserved = 1;
    hardware.launch = 4;
    hardware.memory_rate = 1e-9 * copy_rate(kernels);
  }
  hardware.host_rate = 1e-9 * host_rate(kernels);
  hardware.name = "this-gpu";
  hardware.devices = base::num_gpus();
  hardware.about = fmt::format("{}, measured {}", name, utc_now());
  return hardware;
}

/// Which predictions read.
fs::path own_place(const Settings& settings) { return costs::hardware_path(is_on_gpu(settings) ? "this-gpu" : "this"); }

/// The file of the result. Measuring takes minutes, so a place that cannot be written is refused before.
fs::path place_of(const Settings& settings) {
  if (settings.bench.quick && !settings.bench.hardware)
    throw UsageError(
        "error: bench calibrate --quick only checks the benchmark, and its figures would replace this machine's\n"
        "  name a file for them with --hardware, or leave --quick out");
  const fs::path file = settings.bench.hardware ? fs::path(*settings.bench.hardware) : own_place(settings);
  const fs::path target = base::named_file(file), folder = base::parent_of(target);
  std::error_code problem;
  fs::create_directories(folder, problem);
  if (!problem && ::access(folder.c_str(), W_OK | X_OK) != 0) problem = {errno, std::generic_category()};
  if (!problem && fs::is_directory(target)) problem = std::make_error_code(std::errc::is_a_directory);
  if (problem)
    throw UsageError(fmt::format("error: bench calibrate cannot write {}: {}\n  name another file with --hardware",
                                 file.string(), problem.message()));
  return file;
}

}  // namespace

int bench_calibrate(const Settings& settings) {
  const bool on_gpu = is_on_gpu(settings);
  const fs::path file = place_of(settings);
  const fs::path folder = fs::path(settings.out_dir) / "calibrate";
  fs::create_directories(folder);
  costs::Hardware hardware = on_gpu ? gpu() : processors();
  const std::vector<Busy> ways = busy_ways(on_gpu);
  std::vector<double> spreads;  // of each model's steps
  {
    Progress progress("bench calibrate");
    const std::vector<Shape> shapes = shapes_of(settings.bench.quick, on_gpu);
    size_t models = 0;
    for (const Shape& shape : shapes) models += shape.precisions.size();
    const auto total = static_cast<int64_t>(models * ways.size() + (on_gpu ? 0 : 1));
    int64_t done = 0;
    for (const Busy& busy : ways) {
      std::vector<double> seconds_a_byte;
      for (const Shape& shape : shapes)
        for (const char* precision : shape.precisions) {
          const std::string what = fmt::format(
              "{} of width {} in {}, {}", shape.model, shape.hidden, precision,
              on_gpu ? "on a GPU"
                     : fmt::format("{} x {}", base::plural(busy.ranks, "rank"), base::plural(busy.threads, "thread")));
          progress.step(++done, total, what);
          const fs::path json = folder / "train.json";
          run_child(words_of(shape, busy, precision, settings, folder, json), folder / "train.log", what);
          const Json train = read_json(json);
          spreads.push_back(spread_of(train.at("step_seconds").get<std::vector<double>>()));
          add_operations(hardware, train, busy);
          if (on_gpu) hardware.peak.bf16 = std::max(hardware.peak.bf16, 1e-12 * train.at("peak_flops").get<double>());
          if (const double bytes = train.at("moved_bytes"); bytes > 0)
            seconds_a_byte.push_back(train.at("moved_seconds").get<double>() / bytes);
        }
      if (on_gpu) continue;
      hardware.measured_collectives.push_back(
          {"move", busy.ranks, kMovedBytes, quantile(seconds_a_byte, 0.5) * double(kMovedBytes)});
      if (busy.ranks < 2) continue;
      progress.step(++done, total, "collectives");
      const fs::path json = folder / "collectives.json";
      std::vector<std::string> words = {"bench",          "collectives",  "--devices",    std::to_string(busy.ranks),
                                        "--comm.backend", "shm",          "--bench.json", json.string(),
                                        "--out_dir",      folder.string()};
      if (settings.bench.quick) words.insert(words.end(), {"--bench.quick", "true"});
      run_child(words, folder / "collectives.log", "bench collectives");
      add_collectives(hardware, read_json(json), busy.ranks);
    }
  }
  if (!on_gpu) {
    const DiskRates disk = offload_rates(train::offload_path(settings), settings.offload.buffers);
    hardware.disk_rate = disk.both, hardware.disk_read_rate = disk.read, hardware.disk_write_rate = disk.write;
    hardware.disk_work = disk.work;
  }
  join_rows(hardware);
  if (const double spread = quantile(spreads, 0.75); spread > kDisturbed && !settings.bench.quick)
    base::warn(
        "steps of one model varied by {:.0f} %: other work disturbs this machine, and predictions will be off by as "
        "much; measure again in a quiet hour",
        100 * spread);
  base::write_named_file(file, costs::hardware_yaml(hardware));
  fmt::print(
      "machine  {}\npeak     {:.0f} GFLOP/s fp32, {:.0f} bf16{}; memory {:.1f} GB/s{}{}\n"
      "rows     {} of operations, {} of collectives\nwrote    {}\n{}\n",
      hardware.about, 1e3 * hardware.peak.fp32, 1e3 * hardware.peak.bf16, on_gpu ? "" : " a core", hardware.memory_rate,
      on_gpu ? "" : " a core",
      hardware.disk_rate > 0 ? fmt::format("; disk {:.2f} GB/s both ways, {:.2f} read, {:.2f} written",
                                           hardware.disk_rate, hardware.disk_read_rate, hardware.disk_write_rate)
                             : "",
      hardware.measured_operations.size(), hardware.measured_collectives.size(), file.string(),
      file != own_place(settings)
          ? fmt::format("Plans read it where it is named: trireme plan MODEL --cluster {}",
                        base::shell_quoted(fmt::format("{}x{}", hardware.devices, file.string())))
          : fmt::format(
                "Predictions for this machine read it: trireme plan MODEL --cluster {}x{}; trireme pretrain ... "
                "--predict",
                hardware.devices, hardware.name));
  return 0;
}

}  // namespace trireme::bench
