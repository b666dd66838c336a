// What a cluster or hardware says of a run's settings (trireme plan, explain schedule --hardware), and refusals that
// name it: nobody typed the accelerator that it brings.
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/cli/plan.h"
#include "trireme/config/choices.h"

namespace trireme::cli {
namespace {

using engine::Accelerator;

std::string note_of_giving_way(const ParsedSettings& parsed, const std::string& key, std::string_view value,
                               const NamedHardware& named) {
  return fmt::format("{} {} ({}) gives way to {}", key, value, parsed.provenance.at(key).place, named.option);
}

// Ranks are what the hardware is. An accelerator that a file gives gives way to hardware that was typed.
void settle_accelerator(ParsedSettings& parsed, const costs::Hardware& hardware, const NamedHardware& named,
                        std::vector<std::string>& notes) {
  Accelerator& accelerator = parsed.settings.accelerator;
  const Accelerator own = hardware.shares_cores ? Accelerator::cpu : Accelerator::cuda;
  if (accelerator != own && parsed.given("accelerator")) {
    if (!named.typed || parsed.typed("accelerator"))
      throw UsageError(
          fmt::format("error: {} names {}, and accelerator is {} ({}); leave accelerator out, or name {}", named.option,
                      hardware.shares_cores ? "processors" : "GPUs", config::name_of(accelerator),
                      parsed.provenance.at("accelerator").place,
                      hardware.shares_cores
                          ? std::string("GPUs")
                          : fmt::format("processors, such as {} after trireme bench calibrate", named.processors)));
    notes.push_back(note_of_giving_way(parsed, "accelerator", config::name_of(accelerator), named));
  }
  accelerator = own;
}

}  // namespace

bool is_settled(const ParsedSettings& parsed, const std::string& key) {
  return parsed.given(key) || parsed.provenance.at(key).kind == config::Source::Kind::checkpoint;
}

std::vector<std::string> settle(ParsedSettings& parsed, const costs::Hardware& hardware, const NamedHardware& named) {
  std::vector<std::string> notes;
  settle_accelerator(parsed, hardware, named, notes);
  if (hardware.shares_cores || is_settled(parsed, "precision")) return notes;
  const bool has_bf16 = hardware.peak.bf16 > 0;
  parsed.settings.precision.format = has_bf16 ? model::NumberFormat::bf16_mixed : model::NumberFormat::fp32_true;
  if (!has_bf16)
    notes.push_back(
        fmt::format("{} has no bfloat16, and 16-mixed is not built for GPUs yet: precision is 32-true", hardware.name));
  return notes;
}

std::vector<std::string> settle(ParsedSettings& parsed, const costs::Cluster& cluster, const NamedHardware& named) {
  Settings& s = parsed.settings;
  std::vector<std::string> notes;
  const auto takes_own = [&](const std::string& key, int64_t value, int64_t own) {
    if (parsed.typed(key) || (!named.typed && parsed.given(key))) return false;
    if (parsed.given(key) && value != own)
      notes.push_back(note_of_giving_way(parsed, key, std::to_string(value), named));
    return true;
  };
  if (takes_own("devices", s.devices.value_or(cluster.devices), cluster.devices)) s.devices = cluster.devices;
  if (takes_own("num_nodes", s.num_nodes, cluster.machines)) s.num_nodes = cluster.machines;
  const std::vector<std::string> more = settle(parsed, cluster.hardware, named);
  notes.insert(notes.end(), more.begin(), more.end());
  return notes;
}

void blame_hardware(const ProcessorsOnly& refusal, const NamedHardware& named) {
  throw UsageError(fmt::format("error: {} has GPUs, and {}; name processors, such as {} after trireme bench calibrate",
                               named.what, refusal.reason, named.processors));
}

}  // namespace trireme::cli
