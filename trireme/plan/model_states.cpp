#include <ATen/ATen.h>
#include <fmt/format.h>

#include "trireme/plan/step_plan.h"

namespace trireme::plan {
namespace {

// Bytes a parameter: `whole` on every rank, `divided` among the N that share the state.
struct Formula {
  double whole, divided;
  /// For an optimizer with other state than AdamW's 8 bytes; it is divided wherever anything is.
  Formula with_optimizer(double state_bytes) const {
    return divided > 0 ? Formula{whole, divided + state_bytes - 8} : Formula{whole + state_bytes - 8, 0};
  }
  std::string text() const {
    std::string out = whole > 0 ? fmt::format("{:g}P", whole) : "";
    if (divided > 0) out += fmt::format("{}{:g}P/N", out.empty() ? "" : " + ", divided);
    return out;
  }
};

struct Row {
  const char* strategy;
  Formula mixed, full;            ///< ours: bf16-mixed, and one dtype throughout (at 4 bytes)
  Formula textbook, textbook_full;
};

constexpr Row kRows[] = {{"no_shard (DDP)", {18, 0}, {16, 0}, {16, 0}, {16, 0}},
                         {"zero1", {6, 12}, {8, 8}, {4, 12}, {8, 8}},
                         {"shard_grad_op (ZeRO-2)", {2, 16}, {4, 12}, {2, 14}, {4, 12}},
                         {"full_shard (ZeRO-3)", {0, 18}, {0, 16}, {0, 16}, {0, 16}}};

}  // namespace

std::string render_states(const StepPlan& plan) {
  const model::Precision& precision = plan.request.precision;
  const bool mixed = precision.compute != precision.state;
  const double scale = double(c10::elementSize(precision.state)) / 4;  // the table is for fp32 state
  double parameters = 0;
  for (int g : plan.local_groups) parameters += double(plan.layouts[g].numel());
  const int axes = plan.request.size(comm::Axis::shard) * plan.request.size(comm::Axis::cp);
  const int shards = std::max(plan.request.num_shards(), axes);
  const auto mib = [&](const Formula& f) { return (f.whole + f.divided / shards) * parameters * scale / (1 << 20); };
  std::string out = fmt::format("model states a rank: P = {:.2f} M parameters of its stages, N = {} shards\n",
                                parameters / 1e6, shards);
  out += fmt::format("{:<24}{:>16}{:>12}{:>18}{:>12}\n", "", "here", "MiB", "textbook", "MiB");
  for (const Row& row : kRows) {
    const double kept = 4 * double(plan.request.optimizer_state.size());
    const Formula ours = (mixed ? row.mixed : row.full).with_optimizer(kept),
                  book = (mixed ? row.textbook : row.textbook_full).with_optimizer(kept);
    out += fmt::format("{:<24}{:>16}{:>12.1f}{:>18}{:>12.1f}\n", row.strategy, ours.text(), mib(ours), book.text(),
                       mib(book));
  }
  out +=
      mixed
          ? "  here gradients stay in fp32 (+2 bytes), so that a sum over micro-batches loses no bits; full_shard "
            "keeps\n"
            "  the shard in bf16 too (+2/N: once for the N ranks together), so that a gather converts nothing. Slots\n"
            "  and unsharded units are rows of their own above.\n"
          : "  one dtype throughout: the weights are their own masters. Slots and unsharded units are rows of their\n"
            "  own above.\n";
  if (!plan.request.local_accumulation) out += "  Over shm the ranks of one host share a copy of whole gradients.\n";
  return out;
}

}  // namespace trireme::plan
