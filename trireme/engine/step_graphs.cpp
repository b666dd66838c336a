#include "trireme/engine/step_graphs.h"

#include <algorithm>
#include <climits>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/base/meter.h"
#include "trireme/engine/engine.h"
#include "trireme/ops/announce.h"

namespace trireme::engine {

using schedule::Action;
using schedule::ActionKind;
using schedule::Schedule;

std::vector<GraphPart> graph_parts(const Schedule& list, const std::function<bool(const Action&)>& only_launches) {
  const int count = static_cast<int>(list.actions.size());
  std::vector<char> waits(list.actions.size() + 1), launches(list.actions.size());
  for (size_t i = 0; i < list.actions.size(); ++i) {
    const Action& a = list.actions[i];
    launches[i] = only_launches(a);
    if (!launches[i] && a.completes_at >= 0) waits[static_cast<size_t>(std::min(a.completes_at, count))] = true;
  }
  std::vector<GraphPart> parts;
  for (int begin = 0; begin < count;) {
    int end = begin;
    while (end < count && launches[static_cast<size_t>(end)] && (end == begin || !waits[static_cast<size_t>(end)]))
      ++end;
    if (end > begin) parts.push_back({begin, end});
    begin = std::max(end, begin + 1);
  }
  return parts;
}

StepGraphs::StepGraphs(std::shared_ptr<ops::cuda::GraphMaker> maker, const std::vector<GraphPart>& parts)
    : maker_(std::move(maker)) {
  for (const GraphPart& part : parts) kept_.emplace(part.begin, Kept{.end = part.end});
}

int StepGraphs::end_of(int action) const {
  const auto found = kept_.find(action);
  return found == kept_.end() ? 0 : found->second.end;
}

void StepGraphs::run(int action, const Inputs& inputs, const std::function<void()>& launch) {
  Kept& kept = kept_.at(action);
  const bool repeats = kept.has_run && kept.inputs == inputs;
  kept.has_run = true;
  kept.inputs = inputs;
  if (!repeats) kept.graph.reset();
  if (!repeats || kept.refused) return launch();
  if (!kept.graph) {
    try {
      kept.graph = maker_->capture(launch);
      ++captured_;
    } catch (const std::exception& error) {
      kept.refused = true;
      if (!std::exchange(told_, true))
        base::warn("[engine] a part of the step cannot be a CUDA graph, and is launched kernel by kernel: {}",
                   error.what());
      return launch();
    }
  }
  kept.graph->launch();
}

void Engine::plan_graphs() {
  if (options_.graphs == nullptr) return;
  check_invariant(!options_.poison, "graphs leave no room for poison");
  graphs_.emplace(options_.graphs, graph_parts(plan_.train(), [&](const Action& a) { return only_launches(a); }));
}

std::pair<int, int> Engine::graphs() const {
  return graphs_ ? std::pair(graphs_->parts(), graphs_->captured()) : std::pair(0, 0);
}

bool Engine::only_launches(const Action& a) const {
  if (schedule::is_computation(a.kind))  // rotary tables that follow the texts of a micro-batch are chosen by the host
    return !plan_.request.documents.lengths &&
           std::ranges::none_of(inside_, [](const auto& ranks) { return ranks != nullptr; });
  switch (a.kind) {
    case ActionKind::reduce_gradient:
    case ActionKind::all_reduce_gradient:
      return comm_.reduce->size() == 1;
    case ActionKind::gather_replicas:
    case ActionKind::reduce_replicas:
      return comm_.replicas->size() == 1;
    default:
      return false;
  }
}

int Engine::run_as_graph(const Schedule& s, std::vector<Bound>& bound, int first) {
  // Who measures single operations or actions sees none of a graph.
  if (!graphs_ || &s != &plan_.train() || base::has_meter_fence() || ops::has_listener()) return 0;
  const int end = graphs_->end_of(first);
  if (end == 0 || gives_up()) return 0;
  const size_t before = pending_.size();
  const StepGraphs::Inputs inputs{.loss_scale = loss_scale_ / double(inputs_->supervised_tokens),
                                  .used_micro_batches = inputs_->used_micro_batches.value_or(INT_MAX)};
  graphs_->run(first, inputs, [this, &s, &bound, first, end] {
    for (int i = first; i < end; ++i) perform(s, s.actions[static_cast<size_t>(i)], bound[static_cast<size_t>(i)]);
  });
  pending_.resize(before);  // of groups of one rank: complete in the order of the stream
  return end;
}

}  // namespace trireme::engine
