#include "trireme/observe/step_watch.h"

#include <algorithm>
#include <set>

namespace trireme::observe {
namespace {

/// Seconds that communicators' own threads have worked so far; groups of the same ranks may share a communicator.
double background_seconds(const engine::Communicators& c) {
  std::set<const comm::Communicator*> all;
  for (const auto& one : {c.world, c.gather, c.reduce, c.replicas, c.loss, c.stages[0], c.stages[1]})
    if (one) all.insert(one.get());
  for (const auto& one : c.inside)
    if (one) all.insert(one.get());
  for (const auto& [group, one] : c.tied) all.insert(one.get());
  double sum = 0;
  for (const comm::Communicator* one : all) sum += one->background_seconds();
  return sum;
}

}  // namespace

StepWatch::StepWatch(const engine::Engine& engine)
    : engine_(engine), before_(base::activity_seconds()), background_(background_seconds(engine.communicators())) {}

StepTime StepWatch::read() const {
  StepTime time{.seconds = watch_.seconds()};
  const base::ActivitySeconds now = base::activity_seconds();
  for (size_t i = 0; i < now.size(); ++i) time.causes[i] = now[i] - before_[i];
  const double waited = time.causes[static_cast<size_t>(base::Activity::communication)];
  time.hidden = std::max(0.0, background_seconds(engine_.communicators()) - background_ - waited);
  for (const engine::ActionTime& t : engine_.timeline())
    time.actions[engine_.plan().train().actions[static_cast<size_t>(t.action)].kind] += t.end - t.begin + t.waited;
  return time;
}

}  // namespace trireme::observe
