#include "trireme/plan/step_plan.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/schedule/validate.h"

namespace trireme::plan {
namespace {

std::vector<schedule::TensorDeclaration> declare(const std::vector<model::TensorSpec>& specs) {
  std::vector<schedule::TensorDeclaration> out;
  for (const model::TensorSpec& s : specs) out.push_back({s.name, s.bytes()});
  return out;
}

schedule::StepDeclaration declare_step(const model::Model& model, const StepPlan& plan, bool train) {
  const StepRequest& r = plan.request;
  schedule::StepDeclaration d;
  d.num_ranks = r.num_ranks;
  d.shard = r.shard;
  d.num_micro_batches = train ? r.num_micro_batches : r.num_evaluation_micro_batches;
  d.tokens_per_micro_batch = r.shape.tokens();
  d.compute_bytes = static_cast<int64_t>(c10::elementSize(r.precision.compute));
  d.state_bytes = static_cast<int64_t>(c10::elementSize(r.precision.state));
  d.recompute = train ? r.recompute : schedule::Recompute::none;
  d.prefetch = r.prefetch;
  d.reduce_lag = r.reduce_lag;
  for (size_t u = 0; u < model.units.size(); ++u) {
    const model::Unit& unit = *model.units[u];
    const model::UnitValues v = unit.values(r.shape, r.precision);
    d.units.push_back({.name = unit.name(),
                       .groups = model.groups_of(static_cast<int>(u)),
                       .output_bytes = v.output.bytes(),
                       .saved = declare(v.saved),
                       .forward_work = declare(v.forward_work),
                       .backward_work = declare(v.backward_work),
                       .reads_parameters_in_backward = unit.reads_parameters_in_backward(),
                       .backward_includes_forward = unit.backward_includes_forward()});
  }
  for (size_t g = 0; g < plan.layouts.size(); ++g)
    d.groups.push_back({plan.layouts[g].name(), plan.layouts[g].numel(), plan.held(static_cast<int>(g)).size()});
  return d;
}

// The evaluation list shares the training list's persistent values: its loss slots are sized for the larger.
void equalize_persistent(std::vector<schedule::Schedule>& lists) {
  for (size_t v = 0; v < lists[0].values.size() && lists[0].values[v].persistent; ++v) {
    const int64_t bytes = std::max(lists[0].values[v].bytes, lists[1].values[v].bytes);
    lists[0].values[v].bytes = lists[1].values[v].bytes = bytes;
  }
}

void validate(const StepPlan& plan) {
  for (const schedule::Schedule& s : plan.schedules) {
    std::vector<int> everyone(plan.request.num_ranks);
    for (int r = 0; r < plan.request.num_ranks; ++r) everyone[r] = r;
    // Data-parallel ranks run the same list; four of them show every wait that more would.
    const int ranks = std::min(plan.request.num_ranks, 4);
    everyone.resize(ranks);
    std::vector<schedule::RankProgram> programs(
        ranks, {&s, {{schedule::Queue::gather, everyone}, {schedule::Queue::reduce, everyone}}});
    const auto problems = schedule::validate_ranks(programs, plan.arena);
    if (!problems.empty())
      throw InternalError(fmt::format("the {} schedule is wrong: {}{}", s.name, problems[0],
                                      problems.size() > 1 ? fmt::format(" (and {} more)", problems.size() - 1) : ""));
  }
}

}  // namespace

StepPlan make_step_plan(const model::Model& model, const StepRequest& request) {
  StepPlan plan;
  plan.request = request;
  for (const model::ParameterGroup& g : model.groups) {
    std::vector<shard::FlatTensorSpec> specs;
    for (const model::ParameterSpec& p : g.parameters) specs.push_back({p.name, p.shape, p.decay, p.joined});
    plan.layouts.emplace_back(g.name, specs);
  }
  plan.schedules.push_back(schedule::training_schedule(declare_step(model, plan, true)));
  plan.schedules.push_back(schedule::evaluation_schedule(declare_step(model, plan, false)));
  equalize_persistent(plan.schedules);
  plan.arena = schedule::place(plan.schedules, request.guard_bytes);
  validate(plan);
  return plan;
}

MemoryReport memory_report(const StepPlan& plan) {
  const schedule::Schedule& s = plan.train();
  const int peak = schedule::peak_action(s);
  MemoryReport report;
  report.total_bytes = plan.arena.total();
  report.private_bytes = plan.arena.bytes[0] + plan.arena.bytes[1];
  report.host_shared_bytes = plan.arena.bytes[2];
  report.peak_action = schedule::describe(s, s.actions[peak]);
  std::vector<int64_t> by_cause(8, 0);
  for (const schedule::Value& v : s.values)
    if (v.persistent || (v.first <= peak && peak <= v.last && v.first >= 0)) {
      // A value that takes over another's bytes counts once, for the one before it.
      if (v.takes_over >= 0 && s.values[v.takes_over].last >= peak) continue;
      by_cause[static_cast<int>(v.cause)] +=
          (v.bytes + schedule::kValueAlignment - 1) / schedule::kValueAlignment * schedule::kValueAlignment;
    }
  int64_t sum = 0;
  for (int c = 0; c < 8; ++c) {
    report.rows.push_back({schedule::name_of(static_cast<schedule::Cause>(c)), by_cause[c]});
    sum += by_cause[c];
  }
  report.rows.push_back({"placement and other lists", report.total_bytes - sum});
  std::array<int64_t, schedule::kNumMemories> bound{};
  for (const schedule::Schedule& list : plan.schedules)
    for (const auto& live : schedule::live_bytes(list))
      for (int m = 0; m < schedule::kNumMemories; ++m) bound[m] = std::max(bound[m], live[m]);
  report.lower_bound_bytes = bound[0] + bound[1] + bound[2];
  return report;
}

std::string render_memory(const MemoryReport& report) {
  const double mib = 1 << 20;
  int64_t largest = 1;
  for (const MemoryRow& row : report.rows) largest = std::max(largest, row.bytes);
  std::string out = fmt::format("{:<28}{:>14}\n", "", "MiB a rank");
  for (const MemoryRow& row : report.rows)
    if (row.bytes != 0)
      out += fmt::format("{:<28}{:>14.2f}  |{}\n", row.cause, double(row.bytes) / mib,
                         std::string(static_cast<size_t>(24 * std::max<int64_t>(0, row.bytes) / largest), '#'));
  out += fmt::format("{:<28}{:>14.2f}            at {}\n", "planned peak", double(report.total_bytes) / mib,
                     report.peak_action);
  out += fmt::format("  {} bytes: {} private, {} once per host; no placement needs less than {} ({:.2f} % below)\n",
                     report.total_bytes, report.private_bytes, report.host_shared_bytes, report.lower_bound_bytes,
                     100.0 * double(report.total_bytes - report.lower_bound_bytes) / double(report.total_bytes));
  return out;
}

}  // namespace trireme::plan
