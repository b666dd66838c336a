#include "trireme/costs/hardware.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <sstream>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/config/problems.h"
#include "trireme/config/value.h"
#include "trireme/config/yaml_file.h"
#include "trireme/costs/hardware_files.h"

namespace trireme::costs {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kThis = "this", kThisGpu = "this-gpu";

struct DtypeName {
  at::ScalarType dtype;
  const char* name;
};
constexpr DtypeName kDtypes[] = {
    {at::kDouble, "fp64"}, {at::kFloat, "fp32"}, {at::kHalf, "fp16"}, {at::kBFloat16, "bf16"}, {at::kByte, "bytes"}};

std::optional<at::ScalarType> dtype_of(std::string_view name) {
  for (const DtypeName& d : kDtypes)
    if (name == d.name) return d.dtype;
  return std::nullopt;
}

std::optional<std::pair<int64_t, int64_t>> ranks_by_threads(const std::string& text) {
  std::pair<int64_t, int64_t> both;
  char by = 0;
  std::istringstream in(text);
  if (!(in >> both.first >> by >> both.second) || by != 'x' || !in.eof()) return std::nullopt;
  return both;
}

[[noreturn]] void refuse_row(const std::string& where, const char* key, const std::string& row, const char* form) {
  throw UsageError(fmt::format("error: {}: {} has the row '{}'; a row is '{}'", where, key, row, form));
}

void read_measured(Hardware& h, const std::string& where) {
  for (const std::string& row : h.operations) {
    std::istringstream in(row);
    MeasuredOperation o;
    std::string dtype, busy;
    in >> o.name >> dtype >> busy >> o.m >> o.n >> o.k >> o.seconds;
    const auto ranks = ranks_by_threads(busy);
    const auto known = dtype_of(dtype);
    const bool computes = ranks && ranks->first > 0 && ranks->second > 0;
    if (in.fail() || !computes || !known || !(o.seconds > 0))
      refuse_row(where, "measured.operations", row, "product_nt bf16 1x2 512 1024 256 1.2e-05");
    o.dtype = *known, o.ranks = ranks->first, o.threads = ranks->second;
    h.measured_operations.push_back(o);
  }
  for (const std::string& row : h.collectives) {
    std::istringstream in(row);
    MeasuredCollective c;
    in >> c.name >> c.ranks >> c.bytes >> c.seconds;
    if (in.fail() || c.ranks < 1 || c.bytes < (c.name == "move" ? 1 : 0) || !(c.seconds > 0))
      refuse_row(where, "measured.collectives", row, "all_gather 2 1048576 2.1e-04");
    h.measured_collectives.push_back(c);
  }
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

const HardwareFile* built_in(const std::string& name) {
  for (const HardwareFile& file : hardware_files())
    if (lower(name) == file.name) return &file;
  return nullptr;
}

// " (did you mean a100-40 or a100-80?)" of a100: what a name begins counts more than what is spelled alike.
std::string meant(const std::string& name) {
  std::vector<std::string> begun;
  for (const std::string& known : hardware_names())
    if (known.starts_with(name)) begun.push_back(known);
  if (begun.empty() || name.size() < 2) return base::did_you_mean(name, hardware_names());
  return fmt::format(" (did you mean {}?)", base::join(begun, " or "));
}

void check(const Hardware& h, const std::string& where, config::Problems& problems) {
  const auto refuse = [&](const std::string& what, const char* hint) {
    problems.add(fmt::format("{}: {}", where, what), {}, hint);
  };
  if (h.name.empty()) refuse("a hardware file needs a name", "name: H100");
  if (h.peak.fp32 <= 0 && h.operations.empty())
    refuse("a hardware file needs peak.fp32", "peak: {fp32: 67} is 67 TFLOP/s");
  if (h.memory > 0 && h.reserved >= h.memory)
    refuse(fmt::format("reserved {:g} GB leaves nothing of a device's memory of {:g} GB", h.reserved, h.memory),
           "reserved is the part of memory that driver and libraries take, such as 0.6");
  if (h.memory_rate <= 0) refuse("a hardware file needs memory_rate", "memory_rate: 3350 is 3,350 GB/s");
}

Hardware parse_hardware(const std::string& text, const std::string& where) {
  Hardware h;
  const config::Table table({section(h)});
  config::Problems problems;
  for (const config::Given& given : config::read_yaml(text, where, table, problems)) {
    const config::Setting* row = table.find(given.key);
    if (row == nullptr) {
      problems.add(
          fmt::format("a hardware file has no key {}{}", given.key, base::did_you_mean(given.key, table.keys())),
          {given.source}, "");
      continue;
    }
    if (const auto refusal = config::assign(*row, given))
      problems.add(refusal->headline, {given.source}, refusal->hint);
  }
  problems.throw_if_any();
  check(h, where, problems);
  problems.throw_if_any();
  read_measured(h, where);
  return h;
}

}  // namespace

double Hardware::peak_flops(at::ScalarType dtype, bool float8) const {
  const double own = float8                   ? peak.fp8
                     : dtype == at::kDouble   ? peak.fp64
                     : dtype == at::kBFloat16 ? peak.bf16
                     : dtype == at::kHalf     ? peak.fp16
                                              : peak.fp32;
  if (own > 0 || (dtype == at::kDouble && !float8)) return 1e12 * own;
  const double sixteen = float8 ? std::max(peak.bf16, peak.fp16) : 0;
  return 1e12 * (sixteen > 0 ? sixteen : peak.fp32);
}

std::string lacking_format(const Hardware& h, at::ScalarType compute, bool float8) {
  if (!h.has_kernels) return fmt::format("Trireme has no kernels for {}; it only plans for it", h.name);
  if (float8 && h.peak.fp8 <= 0)
    return fmt::format("{} multiplies no numbers of 8 bits (peak.fp8); take precision bf16-mixed", h.name);
  if (compute == at::kBFloat16 && h.peak.bf16 <= 0)
    return fmt::format("{} has no bfloat16 (peak.bf16); take precision 32-true", h.name);
  return "";
}

config::Section section(Hardware& h) {
  const config::Rules tera{.unit = "TFLOP/s", .at_least = 0}, rate{.unit = "GB/s", .at_least = 0},
      micro{.unit = "microseconds", .at_least = 0}, share{.above = 0, .at_most = 1},
      gigabytes{.unit = "GB", .at_least = 0, .at_most = 1e6};
  return {.name = "",
          .title = "hardware",
          .rows = {
              {"name", &h.name, "its name", {.example = "H100"}},
              {"about", &h.about, "what it is, and where the figures come from", {.may_be_empty = true}},
              {"memory", &h.memory, "memory of a device, in 1e9 bytes", gigabytes},
              {"reserved", &h.reserved, "of it, what driver and libraries take", gigabytes},
              {"memory_rate", &h.memory_rate, "rate of the memory", rate},
              {"launch", &h.launch, "time between two operations", micro},
              {"peak.fp64", &h.peak.fp64, "products of float64", tera},
              {"peak.fp32", &h.peak.fp32, "products of float32", tera},
              {"peak.tf32", &h.peak.tf32, "products of float32 in tf32", tera},
              {"peak.fp16", &h.peak.fp16, "products of float16", tera},
              {"peak.bf16", &h.peak.bf16, "products of bfloat16", tera},
              {"peak.fp8", &h.peak.fp8, "products of 8 bits", tera},
              {"share.product", &h.share.product, "of the peak, by large products", share},
              {"share.product_half",
               &h.share.product_half,
               "rows or columns at which a product reaches half of it",
               {.at_least = 0}},
              {"share.attention", &h.share.attention, "of the peak, by attention", share},
              {"share.memory", &h.share.memory, "of the memory's rate, by operations that move bytes", share},
              {"devices", &h.devices, "devices of a machine", {.at_least = 1, .at_most = 4096}},
              {"inside.rate", &h.inside.rate, "from a device to another of its machine", rate},
              {"inside.latency", &h.inside.latency, "of a message there", micro},
              {"inside.share", &h.inside.share, "of the rate, by large collectives", share},
              {"between.rate", &h.between.rate, "from a device to one of another machine", rate},
              {"between.latency", &h.between.latency, "of a message there", micro},
              {"between.share", &h.between.share, "of the rate, by large collectives", share},
              {"host.memory", &h.host_memory, "memory of a machine", gigabytes},
              {"host.rate", &h.host_rate, "from a device to its machine's memory", rate},
              {"disk.rate", &h.disk_rate, "of a machine's disk, which reads and writes at once", rate},
              {"disk.read_rate", &h.disk_read_rate, "of a disk that only reads; 0: the same", rate},
              {"disk.write_rate", &h.disk_write_rate, "of a disk that only writes; 0: the same", rate},
              {"disk.work", &h.disk_work, "of a core for a GB of it", {.unit = "s", .at_least = 0}},
              {"price.hour", &h.price, "of a device and hour, an example", {.at_least = 0}},
              {"price.currency", &h.currency, "of the price"},
              {"price.date", &h.price_date, "when it was asked", {.may_be_empty = true}},
              {"has_kernels", &h.has_kernels, "whether Trireme runs there; otherwise it only plans"},
              {"shares_cores", &h.shares_cores, "collectives are moved by the cores that compute"},
              {"measured.operations", &h.operations,
               "what operations took: name, dtype, ranks x threads, m, n, k, seconds"},
              {"measured.collectives", &h.collectives, "what collectives took: name, ranks, bytes, seconds"},
          }};
}

const char* dtype_name(at::ScalarType dtype) {
  const auto* found = std::ranges::find(kDtypes, dtype, &DtypeName::dtype);
  return found == std::end(kDtypes) ? "bytes" : found->name;
}

std::vector<std::string> hardware_names() {
  std::vector<std::string> names;
  for (const HardwareFile& file : hardware_files()) names.emplace_back(file.name);
  return names;
}

Hardware read_hardware(const std::string& name_or_path) {
  if (name_or_path == kThis || name_or_path == kThisGpu) {
    const bool gpu = name_or_path == kThisGpu;
    const fs::path path = hardware_path(name_or_path);
    if (!fs::exists(path))
      throw UsageError(
          fmt::format("error: this machine{} has not been measured: {} is missing; run trireme bench "
                      "calibrate{}",
                      gpu ? "'s GPU" : "", path.string(), gpu ? " --accelerator cuda" : ""));
    return read_hardware(path.string());
  }
  if (const HardwareFile* file = built_in(name_or_path))
    return parse_hardware(file->text, fmt::format("configs/hardware/{}.yaml", file->name));
  if (!name_or_path.ends_with(".yaml") && !name_or_path.ends_with(".yml"))
    throw UsageError(fmt::format(
        "error: the hardware {} is not known{}; known are {}, 'this' for this machine, 'this-gpu' for its GPU, or a "
        "file",
        name_or_path, meant(lower(name_or_path)), base::join(hardware_names(), ", ")));
  config::Problems problems;
  const auto text = config::read_settings_file(
      name_or_path, problems, {},
      fmt::format("hardware is a name ({}), or the path of a YAML file such as configs/hardware/h100.yaml",
                  base::join(hardware_names(), ", ")));
  problems.throw_if_any();
  Hardware h = parse_hardware(*text, name_or_path);
  h.path = name_or_path;
  return h;
}

std::string hardware_yaml(const Hardware& hardware) {
  Hardware copy = hardware;
  for (const MeasuredOperation& o : hardware.measured_operations) {
    copy.operations.push_back(fmt::format("{} {} {}x{} {} {} {} {:.4g}", o.name, dtype_name(o.dtype), o.ranks,
                                          o.threads, o.m, o.n, o.k, o.seconds));
  }
  for (const MeasuredCollective& c : hardware.measured_collectives)
    copy.collectives.push_back(fmt::format("{} {} {} {:.4g}", c.name, c.ranks, c.bytes, c.seconds));
  std::string out;
  std::string group;
  for (const config::Setting& row : section(copy).rows) {
    const std::string key(row.key);
    const size_t dot = key.find('.');
    if (dot != std::string::npos && key.substr(0, dot) != group) {
      group = key.substr(0, dot);
      out += group + ":\n";
    }
    const std::string name = dot == std::string::npos ? key : "  " + key.substr(dot + 1);
    if (const auto* list = std::get_if<std::vector<std::string>*>(&row.value)) {
      if ((**list).empty()) continue;
      out += name + ":\n";
      for (const std::string& item : **list) out += "    - " + item + "\n";
      continue;
    }
    const bool text = std::holds_alternative<std::string*>(row.value);
    out += text ? fmt::format("{}: \"{}\"\n", name, config::value_text(row))
                : fmt::format("{}: {}\n", name, config::value_text(row));
  }
  return out;
}

fs::path hardware_path(const std::string& name) {
  const char* const file = name == kThisGpu ? "gpu.yaml" : "hardware.yaml";
  if (const char* config = std::getenv("XDG_CONFIG_HOME"); config != nullptr && *config != '\0')
    return fs::path(config) / "trireme" / file;
  const char* home = std::getenv("HOME");
  return fs::path(home != nullptr ? home : ".") / ".config" / "trireme" / file;
}

std::optional<Hardware> hardware_of_device(const std::string& device_name) {
  const auto is_named = [&](std::string name) {
    std::ranges::replace(name, '-', ' ');
    std::istringstream words(name);
    for (std::string word; words >> word;)
      if (device_name.find(word) == std::string::npos) return false;
    return true;
  };
  std::optional<Hardware> found;
  for (const std::string& name : hardware_names()) {
    Hardware h = read_hardware(name);
    // Of several the one with the longest name: an A100 is no A10.
    if (is_named(h.name) && (!found || h.name.size() > found->name.size())) found = std::move(h);
  }
  return found;
}

namespace {

// Refuses what stands in the name's place, behind the counts, and is none.
void check_name(const std::string& text, const std::string& name) {
  if (name.ends_with(".yaml") || name.ends_with(".yml")) return;
  constexpr std::string_view kDigits = "0123456789";
  const auto refuse = [&](const std::string& why) { throw UsageError(fmt::format("error: cluster {}", why)); };
  if (name.find(',') != std::string::npos)
    refuse(fmt::format("{} names several kinds of devices, and all devices of a cluster are of one kind, as in 8xH100",
                       text));
  const size_t end = std::min(name.find_first_not_of(kDigits), name.size());
  if (end == name.size()) {  // nothing, or a number
    const std::string counts = text.substr(0, text.find_last_not_of("xX") + 1);
    refuse(fmt::format("'{}' names no hardware; say for instance {}xH100", text, counts.empty() ? "8" : counts));
  }
  if (end > 0 && (name[end] == 'x' || name[end] == 'X'))
    refuse(fmt::format("{} has more than two counts; say machines x devices x name, such as 8x8xH100", text));
}

// "2x6xH100": twelve devices on as few machines of eight as they fill.
std::string alike_machines(int64_t ranks, int64_t devices, const std::string& name) {
  int64_t machines = (ranks + devices - 1) / devices;
  while (ranks % machines != 0) ++machines;
  return fmt::format("{}x{}x{}", machines, ranks / machines, name);
}

}  // namespace

Cluster parse_cluster(const std::string& text) {
  constexpr int64_t kMostCounted = 1'000'000;
  std::vector<int64_t> counts;
  std::string rest = text;
  while (counts.size() < 2) {
    const size_t by = rest.find_first_of("xX");
    int64_t count = 0;
    const auto [end, code] = std::from_chars(rest.data(), rest.data() + std::min(by, rest.size()), count);
    if (by == std::string::npos || code != std::errc() || end != rest.data() + by) break;
    if (count < 1 || count > kMostCounted)
      throw UsageError(fmt::format("error: cluster {} has a count of {}; counts are from 1 to {}: 8x8xH100", text,
                                   count, base::human_count(kMostCounted)));
    counts.push_back(count);
    rest = rest.substr(by + 1);
  }
  check_name(text, rest);
  Cluster cluster{.hardware = read_hardware(rest)};
  if (counts.size() == 2) cluster.machines = counts[0], cluster.devices = counts[1];
  if (counts.size() == 1) {
    // 16xH100 are two machines of eight. Ranks on processors share the cores of one machine, however many they are.
    cluster.devices = cluster.hardware.shares_cores ? counts[0] : std::min(counts[0], cluster.hardware.devices);
    if (counts[0] % cluster.devices != 0)
      throw UsageError(fmt::format(
          "error: cluster {}: {} devices do not fill machines of {}; say machines x devices x name, such as "
          "{}",
          text, counts[0], cluster.devices, alike_machines(counts[0], cluster.devices, rest)));
    cluster.machines = counts[0] / cluster.devices;
  }
  return cluster;
}

}  // namespace trireme::costs
