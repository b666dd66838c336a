// What trireme plan advises where memory does not fit. Whatever depends on the model and the mesh is planned before it
// is named.
#include <fmt/format.h>

#include <functional>
#include <optional>
#include <string>

#include "trireme/base/error.h"
#include "trireme/cli/explain.h"
#include "trireme/cli/plan.h"
#include "trireme/costs/report.h"
#include "trireme/model/from_settings.h"
#include "trireme/model/settings.h"
#include "trireme/settings/derived.h"

namespace trireme::cli {
namespace {

/// Bytes of a device, and of the machine that its devices offload to.
struct Need {
  double device = 0, host = 0;
};

/// Nothing where the settings are refused.
std::optional<Need> need_of(const Settings& s, const costs::Machines& machines) try {
  const ExplainedStages explained = plans_of_stages(s, stages_that_count(s, machines));
  const costs::StagePlans stages = stages_of(explained.plans);
  return Need{costs::needed(stages, machines), costs::offloaded(stages, machines).host};
} catch (const UsageError&) {
  return std::nullopt;
}

class Advice {
 public:
  Advice(const Settings& s, const costs::Machines& machines)
      : s_(s), machines_(machines), now_(need_of(s, machines)), mesh_(mesh_shape(s, world_size(s))) {}

  std::string offload() const {
    const costs::Hardware& h = machines_.hardware;
    const bool has_place = h.shares_cores ? h.disk_rate > 0 : h.host_rate > 0;
    if (!has_place || s_.offload.fit) return "";
    const schedule::Tier tier = h.shares_cores ? schedule::Tier::disk : schedule::Tier::cpu;
    const char* const where = h.shares_cores ? "disk" : "cpu";
    std::string text;
    const auto look = [&](const char* kind, schedule::Tier schedule::OffloadSettings::* moved) {
      if (s_.offload.*moved != schedule::Tier::none) return;
      if (helps([&](Settings& s) { s.offload.*moved = tier; })) text += fmt::format("--offload.{} {}, ", kind, where);
    };
    look("optimizer", &schedule::OffloadSettings::optimizer);
    look("parameters", &schedule::OffloadSettings::parameters);
    return text;
  }

  /// Matrices divided inside a machine, stages over machines.
  std::string mesh() const {
    std::string text;
    const int64_t devices = s_.devices.value_or(1);
    for (int64_t tp = devices; mesh_.tp == 1 && tp > 1 && text.empty(); --tp)
      if (devices % tp == 0 && helps([&](Settings& s) { s.mesh.tp = tp; })) text = fmt::format("--mesh.tp {}, ", tp);
    for (const int64_t pp : {s_.num_nodes, devices})
      if (mesh_.pp == 1 && pp > 1 && helps([&](Settings& s) { s.mesh.pp = pp; }))
        return text + fmt::format("--mesh.pp {}, ", pp);
    return text;
  }

 private:
  bool helps(const std::function<void(Settings&)>& change) const {
    Settings changed = s_;
    change(changed);
    const auto need = need_of(changed, machines_);
    if (!now_ || !need) return false;
    const double has = 1e9 * machines_.hardware.host_memory;
    const bool host_fits = machines_.hardware.shares_cores || has <= 0 || need->host <= has;
    return host_fits && need->device < 0.99 * now_->device;
  }

  const Settings& s_;
  const costs::Machines& machines_;
  std::optional<Need> now_;
  MeshShape mesh_;
};

}  // namespace

std::string next_steps(const Settings& s, const costs::Machines& machines, bool may_shorten) {
  const bool adapts = s.lora.r || s.lora.initial_adapter;
  std::string text;
  if (s.train.micro_batch_size > 1) text += "--train.micro_batch_size 1, ";
  if (s.recompute.mode != schedule::Recompute::full) text += "--recompute full, ";
  if (plan::on_one_copy(s.strategy) != plan::Strategy::full_shard && world_size(s) > 1)
    text += "--strategy full_shard, ";
  const Advice advice(s, machines);
  text += advice.offload() + advice.mesh();
  if (!adapts && s.task != train::Learning::classify && !model::config_of(s.model).is_free())
    text += s.accelerator == engine::Accelerator::cuda ? "adapters (--lora.r 8 --lora.dropout 0), "
                                                       : "adapters (--lora.r 8), ";
  if (adapts && s.model.quantize == base::BlockFormat::none && s.accelerator != engine::Accelerator::cuda)
    text += "--quantize bnb.nf4, ";
  return text + (may_shorten ? "shorter sequences (--train.max_seq_length) or " : "") + "more devices (--cluster)";
}

}  // namespace trireme::cli
