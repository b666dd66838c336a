#include "trireme/train/best_checkpoint.h"

#include <cmath>
#include <map>

#include "trireme/checkpoint/folders.h"
#include "trireme/checkpoint/good.h"
#include "trireme/observe/metrics.h"

namespace trireme::train {
namespace {

/// The higher, the better. Nothing where held-out groups failed: a mean over fewer prompts is not to be compared.
std::optional<double> merit_of(const observe::MetricsRow& row) {
  for (const base::Measured& measured : row.measures)
    if (measured.name == kHeldOutFailures && measured.value > 0) return std::nullopt;
  for (const base::Measured& measured : row.measures)
    if (measured.name == "val_reward") return measured.value;
  return row.val_loss ? std::optional(-*row.val_loss) : std::nullopt;
}

}  // namespace

std::optional<std::filesystem::path> best_checkpoint(const std::filesystem::path& out_dir) {
  std::map<int64_t, double> merits;  // of steps
  for (const observe::MetricsRow& row : observe::read_metrics(out_dir / "metrics.jsonl")) {
    if (row.measured_anew) merits.clear();
    if (const auto merit = merit_of(row); merit && std::isfinite(*merit)) merits[row.step] = *merit;
  }
  std::optional<std::filesystem::path> best;
  double most = 0;
  for (const checkpoint::StepFolder& folder : checkpoint::list_step_folders(out_dir)) {
    const auto found = merits.find(folder.step);
    if (found == merits.end() || (best && found->second <= most)) continue;
    using Kind = checkpoint::Verdict::Kind;
    const Kind kind = checkpoint::verdict_of(folder.path).kind;
    if (kind == Kind::left_behind || kind == Kind::weights_alone) continue;
    best = folder.path;
    most = found->second;
  }
  return best;
}

}  // namespace trireme::train
