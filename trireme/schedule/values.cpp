// The last pass: what each action reads and writes. All values of a step are declared here.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/round_up.h"
#include "trireme/schedule/draft.h"
#include "trireme/schedule/placement.h"

namespace trireme::schedule {
namespace {

// A schedule under construction, with an index so that long lists are built in linear time.
class Values {
 public:
  Values(Schedule& s, const StepDeclaration& step) : s_(s), step_(step) {}

  int persistent(ValueKind kind, int group, std::string label, int64_t bytes, Cause cause, Memory memory = Memory::own,
                 int instance = 0) {
    if (memory == Memory::own && group >= 0 && bytes > 0) memory = home_of(kind, step_.groups[group]);
    return remember({.kind = kind,
                     .owner = group,
                     .instance = instance,
                     .label = std::move(label),
                     .bytes = bytes,
                     .memory = memory,
                     .cause = cause,
                     .persistent = true});
  }
  /// `label` is called for a new value: most calls find one that is there.
  template <class Label>
  int transient(ValueKind kind, int owner, int mb, int instance, const Label& label, int64_t bytes, Cause cause,
                Memory memory = Memory::own) {
    const int found = find(kind, owner, mb, instance);
    if (found >= 0) return found;
    return remember({.kind = kind,
                     .owner = owner,
                     .micro_batch = mb,
                     .instance = instance,
                     .label = label(),
                     .bytes = bytes,
                     .memory = memory,
                     .cause = cause});
  }
  int find(ValueKind kind, int owner, int mb = -1, int instance = 0) const {
    return index_.find(kind, owner, mb, instance);
  }
  // What is no tile is whole.
  int find_tile(ValueKind kind, int group, int tile) const {
    const int found = find(kind, group, -1, tile);
    return found >= 0 ? found : find(kind, group);
  }
  Value& operator[](int value) { return s_.values[value]; }

  void declare_persistent();

  /// What the optimizer reads. If it follows at once, the value lives from the first reduction to the Step.
  int gradient(int group) {
    if (const int found = find(ValueKind::gradient, group); found >= 0) return found;
    const GroupDeclaration& g = step_.groups[group];
    const bool whole = step_.sharding.whole_gradients;
    const int value = persistent(ValueKind::gradient, group, fmt::format("gradient({})", g.name),
                                 (whole ? g.numel : g.owned) * g.gradient_bytes, Cause::gradients,
                                 whole ? whole_gradient_memory(g) : Memory::own);
    s_.values[value].persistent = !step_.steps_in_backward;
    return value;
  }
  int batch(ValueKind kind, int mb) {
    const char* name = kind == ValueKind::tokens ? "tokens" : kind == ValueKind::targets ? "targets" : "documents";
    const int64_t bytes = kind == ValueKind::tokens    ? step_.input_bytes
                          : kind == ValueKind::targets ? step_.target_bytes
                                                       : step_.document_bytes;
    return transient(kind, -1, mb, 0, [&] { return fmt::format("{}(mb {})", name, mb); }, bytes, Cause::messages);
  }
  int boundary(int unit, int mb) {
    const int value = transient(
        ValueKind::boundary, unit, mb, 0, [&] { return in("boundary", unit, mb); }, step_.units[unit].output_bytes,
        Cause::saved);
    s_.values[value].held = unit + 1 == static_cast<int>(step_.units.size());  // logits, for the caller
    return value;
  }
  int cache(int unit, int mb) {
    const int value = transient(
        ValueKind::cache, unit, mb, 0, [&] { return in("cache", unit, mb); }, step_.units[unit].cache_bytes,
        Cause::cache);
    s_.values[value].held = true;
    return value;
  }
  int boundary_gradient(int unit, int mb) {
    return transient(
        ValueKind::boundary_gradient, unit, mb, 0, [&] { return in("gradient", unit, mb); },
        step_.units[unit].output_bytes, Cause::work);
  }
  int tensor(ValueKind kind, int unit, int mb, int instance, const TensorDeclaration& t) {
    const char* name = kind == ValueKind::saved ? "saved" : kind == ValueKind::deferred ? "deferred" : "work";
    return transient(
        kind, unit, mb, instance, [&] { return in(name, unit, mb) + "." + t.label; }, t.bytes,
        kind == ValueKind::work ? Cause::work : Cause::saved);
  }
  int parameters(int group, int instance) {
    const GroupDeclaration& g = step_.groups[group];
    return transient(
        ValueKind::parameters, group, -1, instance, [&] { return fmt::format("parameters({}) #{}", g.name, instance); },
        g.numel * g.compute_bytes, Cause::unsharded, Memory::host_shared);
  }
  int step_work(int group) {
    const GroupDeclaration& g = step_.groups[group];
    return transient(
        ValueKind::step_work, group, -1, 0, [&] { return fmt::format("work of the step({})", g.name); },
        g.step_work_bytes, Cause::work);
  }
  int slot(int group, int mb) {
    const GroupDeclaration& g = step_.groups[group];
    return transient(
        ValueKind::gradient_slot, group, mb, 0, [&] { return fmt::format("gradient slot({}, mb {})", g.name, mb); },
        g.numel * g.slot_bytes, Cause::slots, step_.sharding.several_ranks ? Memory::symmetric : Memory::own);
  }

 private:
  std::string in(const char* what, int unit, int mb) const {
    return fmt::format("{}({}, mb {})", what, step_.units[unit].name, mb);
  }
  // All ranks read the same sums, so a host needs one copy. Each rank needs its own if it first sums its own
  // micro-batches there, or if gradients of other stages are added to it.
  Memory whole_gradient_memory(const GroupDeclaration& group) const {
    if (!step_.sharding.several_ranks) return Memory::own;
    if (step_.sharding.local) return Memory::symmetric;
    return group.tied_over_stages ? Memory::own : Memory::host_reduced;
  }
  // Where a group's value rests. What several ranks read or write stays in their memory.
  Memory home_of(ValueKind kind, const GroupDeclaration& group) const {
    if (!group.leaves) return Memory::own;
    const OffloadSettings& o = step_.offload;
    const bool is_read = !group.mixed() || !group.trained;  // by units, or by gathers
    switch (kind) {
      case ValueKind::optimizer_first:
      case ValueKind::optimizer_second:
      case ValueKind::compensation:
        return memory_of(o.optimizer);
      case ValueKind::master:
        return memory_of(is_read ? o.parameters : o.master);
      case ValueKind::weights:
      case ValueKind::compute_shard:
        return memory_of(o.parameters);
      case ValueKind::gradient:
        return memory_of(o.gradients);
      default:
        return Memory::own;
    }
  }
  int remember(Value v) {
    if (v.memory == Memory::disk) {
      v.bytes = base::round_up(v.bytes, kDiskAlignment);
      v.alignment = kDiskAlignment;
    }
    const auto value = static_cast<int>(s_.values.size());
    index_.add(v, value);
    s_.values.push_back(std::move(v));
    return value;
  }

  Schedule& s_;
  const StepDeclaration& step_;
  ValueIndex index_;
};

void Values::declare_persistent() {
  const Sharding& s = step_.sharding;
  for (int g : local_groups(step_)) {
    const GroupDeclaration& group = step_.groups[g];
    const auto label = [&](const char* what) { return fmt::format("{}({})", what, group.name); };
    const int64_t whole = group.numel * group.gradient_bytes;
    // What the optimizer alone reads: a value for each tile, side by side.
    const auto tiles = [&](ValueKind kind, const char* what, Cause cause) {
      for (int t = 0; t < group.step_tiles(); ++t)
        persistent(kind, g, label(what) + (t > 0 ? fmt::format(", tile {}", t) : ""),
                   group.tile_size(t) * group.state_bytes, cause, Memory::own, t);
    };
    if (s.gather != Gather::each_use)
      persistent(ValueKind::weights, g, label("weights"), group.numel * group.compute_bytes, Cause::weights,
                 s.gather == Gather::once ? Memory::host_shared : Memory::own);
    if (group.mixed() || s.gather == Gather::each_use) {
      if (group.mixed())
        tiles(ValueKind::master, "master", Cause::weights);
      else
        persistent(ValueKind::master, g, label("master"), group.owned * group.state_bytes, Cause::weights);
    }
    for (size_t i = 0; i < group.optimizer_state.size(); ++i)
      tiles(kOptimizerState[i], group.optimizer_state[i].c_str(), Cause::optimizer);
    if (group.whole_state_bytes > 0)
      persistent(kOptimizerState[0], g, label("moments"), group.whole_state_bytes, Cause::optimizer);
    if (group.compensated) tiles(ValueKind::compensation, "compensation", Cause::optimizer);
    if (group.trained && s.local && !s.whole_gradients)
      persistent(ValueKind::local_gradient, g, label("own gradient"), whole, Cause::gradients,
                 whole_gradient_memory(group));
    if (group.trained && !step_.steps_in_backward) gradient(g);
    if (group.mixed() && s.gather == Gather::each_use)
      persistent(ValueKind::compute_shard, g, label("weights"), group.owned * group.compute_bytes, Cause::weights);
  }
  persistent(ValueKind::norm_partials, -1, "norm partials", 8 * step_.norm_blocks, Cause::messages);
  persistent(ValueKind::norm_all, -1, "norm sums of all ranks", kNormSumBytes * (step_.norm_ranks + 1),
             Cause::messages);
  persistent(ValueKind::loss, -1, "losses", 8 * step_.num_micro_batches * sums_of_rank(step_, step_.pipeline_rank),
             Cause::messages);
  persistent(ValueKind::loss_all, -1, "losses of all ranks", 8 * step_.all_losses, Cause::messages);
  if (step_.save_copy_bytes > 0)
    persistent(ValueKind::save_copy, -1, "copy for saving", step_.save_copy_bytes, Cause::save_copy,
               step_.offload.uses(Tier::disk)  ? Memory::disk
               : step_.offload.uses(Tier::cpu) ? Memory::host
                                               : Memory::own);
}

class Attacher {
 public:
  Attacher(Schedule& s, const StepDeclaration& step, bool has_loss)
      : step_(step), has_loss_(has_loss), values_(s, step) {
    values_.declare_persistent();
  }

  void attach(Action& a, const Draft& d) {
    const auto gradient = [&] { return values_.gradient(d.owner); };  // of actions on a group
    switch (d.kind) {
      case ActionKind::load_batch:
        if (reads_batch()) {
          use(a, values_.batch(ValueKind::tokens, d.micro_batch), Access::write);
          if (has_loss_) use(a, values_.batch(ValueKind::targets, d.micro_batch), Access::write);
        }
        if (step_.document_bytes > 0) use(a, values_.batch(ValueKind::documents, d.micro_batch), Access::write);
        break;
      case ActionKind::unshard:
        attach_unshard(a, d);
        break;
      case ActionKind::forward:
      case ActionKind::recompute:
      case ActionKind::backward:
      case ActionKind::backward_input:
      case ActionKind::backward_weight:
        attach_computation(a, d);
        break;
      case ActionKind::send:
      case ActionKind::receive:
        use(a,
            d.queue.lane == kActivations ? values_.boundary(d.owner, d.micro_batch)
                                         : values_.boundary_gradient(d.owner, d.micro_batch),
            d.kind == ActionKind::send ? Access::read : Access::write);
        a.bytes = step_.units[d.owner].output_bytes;
        break;
      case ActionKind::reduce_gradient:
      case ActionKind::all_reduce_gradient:
        attach_reduction(a, d);
        break;
      case ActionKind::gather_replicas:
      case ActionKind::reduce_replicas:
      case ActionKind::reduce_tied:
        a.bytes = values_[gradient()].bytes;
        use(a, gradient(), Access::accumulate);
        break;
      case ActionKind::gather_loss:
        use(a, values_.find(ValueKind::loss, -1), Access::read);
        use(a, values_.find(ValueKind::loss_all, -1), Access::write);
        a.bytes = 8 * step_.all_losses;
        break;
      case ActionKind::sum_squares:
        use(a, gradient(), Access::read);
        use(a, values_.find(ValueKind::norm_partials, -1), Access::write);
        break;
      case ActionKind::gather_norm:
        for (int g : trained_groups(step_, local_groups(step_)))
          if (!step_.steps_in_backward && !is_tier(values_[values_.gradient(g)].memory))
            use(a, values_.gradient(g), Access::read);
        use(a, values_.find(ValueKind::norm_partials, -1), Access::write);
        use(a, values_.find(ValueKind::norm_all, -1), Access::write);
        a.bytes = kNormSumBytes * step_.norm_ranks;
        break;
      case ActionKind::clip:
        use(a, values_.find(ValueKind::norm_all, -1), Access::read);
        break;
      case ActionKind::step:
        for (ValueKind kind : {ValueKind::master, kOptimizerState[0], kOptimizerState[1], ValueKind::compensation})
          if (const int v = values_.find_tile(kind, d.owner, d.part); v >= 0) use(a, v, Access::accumulate);
        use(a, gradient(), ends_gradient(d) ? Access::consume : Access::read);
        // Weights of another dtype than the master's are written anew; of weights that ranks share, this rank's part.
        for (ValueKind kind : {ValueKind::weights, ValueKind::compute_shard})
          if (const int v = values_.find(kind, d.owner); v >= 0) {
            const bool anew = step_.groups[d.owner].mixed() && step_.sharding.gather != Gather::once && d.part == 0;
            use(a, v, anew ? Access::write : Access::accumulate);
          }
        if (step_.groups[d.owner].step_work_bytes > 0) use(a, values_.step_work(d.owner), Access::write);
        a.meets = step_.groups[d.owner].meets_in_step;
        break;
      case ActionKind::fetch:
      case ActionKind::evict:
        check_invariant(false, "the pass that moves values makes fetches and evicts");
    }
  }

 private:
  static void use(Action& a, int value, Access access) { a.uses.push_back({value, access}); }
  bool ends_gradient(const Draft& d) const {
    return step_.steps_in_backward && d.part + 1 == step_.groups[d.owner].step_tiles();
  }
  int last_unit() const { return static_cast<int>(step_.units.size()) - 1; }
  bool reads_batch() const {
    if (is_local(step_, 0)) return true;
    for (int u = 0; u <= last_unit(); ++u)
      if (is_local(step_, u) && reads_targets(step_, u)) return true;
    return false;
  }
  // Where a rank sums the gradients of its own micro-batches: where the optimizer reads them, if that is whole anyway.
  int own_sum(int group) {
    return step_.sharding.whole_gradients ? values_.gradient(group) : values_.find(ValueKind::local_gradient, group);
  }

  void attach_unshard(Action& a, const Draft& d) {
    const GroupDeclaration& group = step_.groups[d.owner];
    a.bytes = group.numel * group.compute_bytes;
    if (step_.sharding.gather == Gather::once) {
      use(a, values_.find(ValueKind::weights, d.owner), Access::accumulate);
      return;
    }
    use(a, values_.find(group.mixed() ? ValueKind::compute_shard : ValueKind::master, d.owner), Access::read);
    use(a, values_.parameters(d.owner, d.instance), Access::write);
  }

  void attach_reduction(Action& a, const Draft& d) {
    const int result = values_.gradient(d.owner);
    const int source = step_.sharding.local ? own_sum(d.owner) : values_.slot(d.owner, d.micro_batch);
    a.bytes = values_[source].bytes;
    if (source == result) return use(a, result, Access::accumulate);
    use(a, source, Access::read);
    use(a, result, d.accumulate ? Access::accumulate : Access::write);
  }

  void attach_computation(Action& a, const Draft& d) {
    const UnitDeclaration& unit = step_.units[d.owner];
    const bool weight_half = d.kind == ActionKind::backward_weight;
    a.meets = weight_half ? unit.meets_in_weight_half : unit.meets;
    use_parameters(a, d);
    if (!weight_half) use_input(a, d);
    if (d.kind == ActionKind::forward && unit.output_bytes > 0)
      use(a, values_.boundary(d.owner, d.micro_batch), Access::write);
    if (unit.cache_bytes > 0 && !has_loss_) use(a, values_.cache(d.owner, d.micro_batch), Access::accumulate);
    use_saved(a, d);
    const auto& [pass, cost, work] = pass_of(unit, d.kind);
    a.cost = cost;
    use_tensors(a, ValueKind::work, d, work, pass, Access::write);
    if (weight_half || d.kind == ActionKind::backward_input)
      use_tensors(a, ValueKind::deferred, d, unit.deferred, Pass::backward_input,
                  weight_half ? Access::consume : Access::write);
    if (d.kind == ActionKind::backward || d.kind == ActionKind::backward_input) use_gradients(a, d);
    if (writes_gradient(d.kind)) use_weight_gradients(a, d);
  }

  struct UnitPass {
    Pass pass;
    double cost;
    const std::vector<TensorDeclaration>& work;
  };
  static UnitPass pass_of(const UnitDeclaration& u, ActionKind kind) {
    switch (kind) {
      case ActionKind::forward:
        return {Pass::forward, u.forward_cost, u.forward_work};
      case ActionKind::recompute:
        return {Pass::recompute, u.recompute_cost, u.forward_work};
      case ActionKind::backward:
        return {Pass::backward, u.input_cost + u.weight_cost, u.backward_work};
      case ActionKind::backward_input:
        return {Pass::backward_input, u.input_cost, u.input_work};
      default:
        return {Pass::backward_weight, u.weight_cost, u.weight_work};
    }
  }

  void use_parameters(Action& a, const Draft& d) {
    for (int g : step_.units[d.owner].groups_read_by(d.kind))
      use(a,
          step_.sharding.gather == Gather::each_use ? values_.parameters(g, d.parameters.at(g))
                                                    : values_.find(ValueKind::weights, g),
          Access::read);
  }

  void use_input(Action& a, const Draft& d) {
    if (d.owner > 0) use(a, values_.boundary(d.owner - 1, d.micro_batch), Access::read);
    if (d.owner == 0) use(a, values_.batch(ValueKind::tokens, d.micro_batch), Access::read);
    if (step_.document_bytes > 0 && step_.units[d.owner].reads_documents)
      use(a, values_.batch(ValueKind::documents, d.micro_batch), Access::read);
    if (d.kind == ActionKind::recompute || !has_loss_) return;
    if (reads_targets(step_, d.owner)) use(a, values_.batch(ValueKind::targets, d.micro_batch), Access::read);
    const bool measures = step_.units[d.owner].num_measures > 0 && d.kind == ActionKind::forward;
    if (d.owner == last_unit() || measures) use(a, values_.find(ValueKind::loss, -1), Access::accumulate);
  }

  void use_tensors(Action& a, ValueKind kind, const Draft& d, const std::vector<TensorDeclaration>& tensors, Pass pass,
                   Access access) {
    for (size_t i = 0; i < tensors.size(); ++i)
      if (!tensors[i].label.empty())
        use(a, values_.tensor(kind, d.owner, d.micro_batch, tensor_instance(pass, static_cast<int>(i)), tensors[i]),
            access);
  }

  // Forward writes all of `saved`. What is recomputed ends with forward, and a new value begins with Recompute.
  void use_saved(Action& a, const Draft& d) {
    const UnitDeclaration& unit = step_.units[d.owner];
    for (int i = 0; i < static_cast<int>(unit.saved.size()); ++i) {
      if (unit.saved[i].label.empty()) continue;
      const bool again = std::count(unit.recomputed.begin(), unit.recomputed.end(), i) > 0;
      const bool for_weight = std::count(unit.saved_for_weight.begin(), unit.saved_for_weight.end(), i) > 0;
      Access access = Access::consume;
      if (d.kind == ActionKind::forward || (d.kind == ActionKind::recompute && again)) access = Access::write;
      if (d.kind == ActionKind::recompute && !again) access = Access::read;
      if (d.kind == ActionKind::backward_input && for_weight) access = Access::accumulate;
      if (d.kind == ActionKind::backward_weight && !for_weight) continue;
      const Pass made = again && d.kind != ActionKind::forward ? Pass::recompute : Pass::forward;
      use(a, values_.tensor(ValueKind::saved, d.owner, d.micro_batch, tensor_instance(made, i), unit.saved[i]), access);
    }
  }

  // The gradient of the input takes over the bytes of the output's.
  void use_gradients(Action& a, const Draft& d) {
    int incoming = -1;
    if (d.owner < last_unit()) {
      incoming = values_.boundary_gradient(d.owner, d.micro_batch);
      use(a, incoming, d.owner > 0 ? Access::consume : Access::read);
    }
    if (d.owner == 0) return;
    const int outgoing = values_.boundary_gradient(d.owner - 1, d.micro_batch);
    values_[outgoing].takes_over = incoming;
    use(a, outgoing, Access::write);
  }

  // A slot is first written once a micro-batch, a rank's own sum once a step; later passes add.
  void use_weight_gradients(Action& a, const Draft& d) {
    for (int g : trained_groups(step_, step_.units[d.owner].groups)) {
      const int place = step_.sharding.local ? own_sum(g) : values_.slot(g, d.micro_batch);
      use(a, place, begun_.insert(place).second ? Access::write : Access::accumulate);
    }
  }

  const StepDeclaration& step_;
  const bool has_loss_;
  Values values_;
  std::set<int> begun_;  // values that hold gradients
};

}  // namespace

Schedule attach_values(const DraftList& list, const StepDeclaration& step, bool has_loss) {
  Schedule s;
  s.has_loss = has_loss;
  for (const UnitDeclaration& u : step.units) s.unit_names.push_back(u.name);
  for (const GroupDeclaration& g : step.groups) {
    if (!g.trained) s.frozen_groups.insert(static_cast<int>(s.group_names.size()));
    s.group_names.push_back(g.name);
  }
  std::map<int, int> position;
  for (size_t i = 0; i < list.drafts.size(); ++i) position[list.drafts[i].id] = static_cast<int>(i);
  Attacher attacher(s, step, has_loss);
  for (const Draft& d : list.drafts) {
    Action a = d;
    const bool at_the_end = d.completes_before == kTail && list.tail_id < 0;
    if (d.completes_before != -1)
      a.completes_at = at_the_end ? static_cast<int>(list.drafts.size())
                                  : position.at(d.completes_before == kTail ? list.tail_id : d.completes_before);
    attacher.attach(a, d);
    s.actions.push_back(std::move(a));
  }
  move_values(s, step.offload);
  // Without a backward nothing is saved: what lies between units is their work.
  const auto trains = [](const Action& a) { return writes_gradient(a.kind); };
  if (std::ranges::none_of(s.actions, trains))
    for (Value& v : s.values)
      if (v.cause == Cause::saved) v.cause = Cause::work;
  return s;
}

}  // namespace trireme::schedule
