#include "trireme/schedule/passes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace trireme::schedule {
namespace {

// An action while passes still move it: partners are named by id, not by position.
struct Draft {
  int id;
  ActionKind kind;
  int owner = -1;
  int micro_batch = -1;
  Queue queue = Queue::compute;
  int completes_before = -1;            // id of another draft
  bool accumulate = false;
  int instance = 0;                     // unshard: which
  std::map<int, int> parameters;        // group -> unshard instance that a compute action reads
};

bool is_unit_action(ActionKind kind) {
  return kind == ActionKind::forward || kind == ActionKind::recompute || kind == ActionKind::backward;
}

class Builder {
 public:
  Builder(const StepDeclaration& step, bool train) : step_(step), train_(train) {}

  Schedule build() {
    lay_down_units();
    if (train_ && step_.recompute == Recompute::full) insert_recompute();
    if (is_sharded()) insert_unshards();
    if (train_) insert_reductions();
    append_tail();
    return attach_values();
  }

 private:
  bool is_sharded() const { return step_.shard && step_.num_ranks > 1; }
  int last_unit() const { return static_cast<int>(step_.units.size()) - 1; }
  Draft draft(ActionKind kind, int owner, int micro_batch) {
    return {.id = next_id_++, .kind = kind, .owner = owner, .micro_batch = micro_batch};
  }

  void lay_down_units() {
    for (int mb = 0; mb < step_.num_micro_batches; ++mb) {
      list_.push_back(draft(ActionKind::load_batch, -1, mb));
      for (int u = 0; u <= last_unit(); ++u)
        if (!train_ || !step_.units[u].backward_includes_forward) list_.push_back(draft(ActionKind::forward, u, mb));
      for (int u = last_unit(); train_ && u >= 0; --u) list_.push_back(draft(ActionKind::backward, u, mb));
    }
  }

  void insert_recompute() {
    std::vector<Draft> out;
    for (Draft& d : list_) {
      if (d.kind == ActionKind::backward && !step_.units[d.owner].saved.empty())
        out.push_back(draft(ActionKind::recompute, d.owner, d.micro_batch));
      out.push_back(std::move(d));
    }
    list_ = std::move(out);
  }

  // An Unshard stands `prefetch` unit actions before its reader. Readers of a group that lie no further apart than
  // that share one: a second gather would start before the first one's bytes could be given back.
  void insert_unshards() {
    std::vector<int> unit_positions;
    for (size_t i = 0; i < list_.size(); ++i)
      if (is_unit_action(list_[i].kind)) unit_positions.push_back(static_cast<int>(i));
    std::map<int, std::vector<Draft>> before;  // position in list_ -> unshards to start there
    struct Held {
      int instance;
      size_t reader;  // the latest one
    };
    std::map<int, Held> held;
    std::map<int, int> instances;
    for (size_t k = 0; k < unit_positions.size(); ++k) {
      Draft& d = list_[unit_positions[k]];
      std::map<int, int> current;
      const UnitDeclaration& unit = step_.units[d.owner];
      if (d.kind != ActionKind::backward || unit.reads_parameters_in_backward) {
        for (int g : unit.groups) {
          if (auto it = held.find(g);
              it != held.end() && k - it->second.reader <= static_cast<size_t>(step_.prefetch) + 1) {
            it->second.reader = k;
            current[g] = it->second.instance;
            continue;
          }
          const int instance = instances[g]++;
          Draft u = draft(ActionKind::unshard, g, d.micro_batch);
          u.queue = Queue::gather;
          u.instance = instance;
          u.completes_before = d.id;
          const size_t start = k >= static_cast<size_t>(step_.prefetch) ? k - step_.prefetch : 0;
          before[unit_positions[start]].push_back(u);
          held[g] = {instance, k};
          current[g] = instance;
        }
      }
      d.parameters = std::move(current);
    }
    std::vector<Draft> out;
    for (size_t i = 0; i < list_.size(); ++i) {
      for (Draft& u : before[static_cast<int>(i)]) out.push_back(std::move(u));
      out.push_back(std::move(list_[i]));
    }
    list_ = std::move(out);
  }

  // One ReduceGradient for each group and micro-batch, after the last Backward that adds to the gradient.
  void insert_reductions() {
    std::map<std::pair<int, int>, int> last_writer;  // (group, micro-batch) -> draft id
    for (const Draft& d : list_)
      if (d.kind == ActionKind::backward)
        for (int g : step_.units[d.owner].groups) last_writer[{g, d.micro_batch}] = d.id;
    std::vector<int> unit_ids;
    for (const Draft& d : list_)
      if (is_unit_action(d.kind)) unit_ids.push_back(d.id);
    std::map<int, bool> reduced;  // a group's first reduction of the step overwrites
    std::vector<Draft> out;
    size_t k = 0;
    for (Draft& d : list_) {
      const bool unit_action = is_unit_action(d.kind);
      const Draft current = d;
      out.push_back(std::move(d));
      if (!unit_action) continue;
      ++k;  // unit actions up to and with this one
      if (current.kind != ActionKind::backward) continue;
      for (int g : step_.units[current.owner].groups) {
        if (last_writer[{g, current.micro_batch}] != current.id) continue;
        Draft r = draft(ActionKind::reduce_gradient, g, current.micro_batch);
        r.queue = Queue::reduce;
        r.accumulate = std::exchange(reduced[g], true);
        const size_t until = k + step_.reduce_lag;
        r.completes_before = until < unit_ids.size() ? unit_ids[until] : kTail;
        out.push_back(std::move(r));
      }
    }
    list_ = std::move(out);
  }

  void append_tail() {
    Draft loss = draft(ActionKind::gather_loss, -1, -1);
    tail_id_ = loss.id;
    list_.push_back(std::move(loss));
    if (!train_) return;
    list_.push_back(draft(ActionKind::gather_norm, -1, -1));
    list_.push_back(draft(ActionKind::clip, -1, -1));
    for (size_t g = 0; g < step_.groups.size(); ++g) list_.push_back(draft(ActionKind::step, static_cast<int>(g), -1));
  }

  // ---- values ----

  int add(Value v) {
    s_.values.push_back(std::move(v));
    return static_cast<int>(s_.values.size()) - 1;
  }

  int persistent(ValueKind kind, int group, std::string label, int64_t bytes, Cause cause) {
    return add(
        {.kind = kind, .owner = group, .label = std::move(label), .bytes = bytes, .cause = cause, .persistent = true});
  }

  void add_persistent_values() {
    int64_t own_blocks = 0, all_blocks = 0;
    for (size_t i = 0; i < step_.groups.size(); ++i) {
      const GroupDeclaration& g = step_.groups[i];
      const int n = static_cast<int>(i);
      const int64_t state = g.owned * step_.state_bytes;
      persistent(ValueKind::master, n, "master(" + g.name + ")", state, Cause::weights);
      persistent(ValueKind::exp_avg, n, "exp_avg(" + g.name + ")", state, Cause::optimizer);
      persistent(ValueKind::exp_avg_sq, n, "exp_avg_sq(" + g.name + ")", state, Cause::optimizer);
      persistent(ValueKind::gradient_shard, n, "gradient(" + g.name + ")", state, Cause::gradients);
      if (step_.compute_bytes != step_.state_bytes)
        persistent(ValueKind::compute_shard, n, "weights(" + g.name + ")", g.owned * step_.compute_bytes,
                   Cause::weights);
      own_blocks += g.owned / 4096;
      all_blocks += g.numel / 4096;
    }
    persistent(ValueKind::norm_partials, -1, "norm partials", 8 * own_blocks, Cause::messages);
    persistent(ValueKind::norm_all, -1, "norm partials of all ranks", 8 * all_blocks, Cause::messages);
    persistent(ValueKind::loss, -1, "losses", 8 * int64_t(step_.num_micro_batches), Cause::messages);
    persistent(ValueKind::loss_all, -1, "losses of all ranks", 8 * int64_t(step_.num_micro_batches) * step_.num_ranks,
               Cause::messages);
  }

  int transient(ValueKind kind, int owner, int mb, int instance, std::string label, int64_t bytes, Cause cause,
                Memory memory = Memory::device) {
    const int found = s_.find_transient(kind, owner, mb, instance);
    if (found >= 0) return found;
    return s_.remember(kind, owner, mb, instance,
                       add({.kind = kind,
                            .owner = owner,
                            .micro_batch = mb,
                            .instance = instance,
                            .label = std::move(label),
                            .bytes = bytes,
                            .memory = memory,
                            .cause = cause}));
  }

  // Groups whose weights units read without an Unshard keep them in the compute dtype, or in the masters.
  int resident_parameters(int group) {
    const ValueKind kind = step_.compute_bytes != step_.state_bytes ? ValueKind::compute_shard : ValueKind::master;
    return s_.find(kind, group, -1);
  }

  void use_parameters(Action& a, const Draft& d) {
    const UnitDeclaration& unit = step_.units[d.owner];
    if (d.kind == ActionKind::backward && !unit.reads_parameters_in_backward) return;
    for (int g : unit.groups)
      a.uses.push_back({is_sharded() ? parameters(g, d.parameters.at(g)) : resident_parameters(g), Access::read});
  }

  int parameters(int group, int instance) {
    const GroupDeclaration& g = step_.groups[group];
    return transient(ValueKind::parameters, group, -1, instance, fmt::format("parameters({}) #{}", g.name, instance),
                     g.numel * step_.compute_bytes, Cause::unsharded, Memory::host_shared);
  }

  std::string in(const std::string& what, int unit, int mb) const {
    return fmt::format("{}({}, mb {})", what, step_.units[unit].name, mb);
  }

  int boundary(int unit, int mb) {
    return transient(ValueKind::boundary, unit, mb, 0, in("boundary", unit, mb), step_.units[unit].output_bytes,
                     Cause::saved);
  }
  int batch(ValueKind kind, int mb) {
    return transient(kind, -1, mb, 0, fmt::format("{}(mb {})", kind == ValueKind::tokens ? "tokens" : "targets", mb),
                     8 * step_.tokens_per_micro_batch, Cause::messages);
  }
  int slot(int group, int mb) {
    const GroupDeclaration& g = step_.groups[group];
    return transient(ValueKind::gradient_slot, group, mb, 0, fmt::format("gradient slot({}, mb {})", g.name, mb),
                     g.numel * step_.compute_bytes, Cause::slots,
                     step_.num_ranks > 1 ? Memory::symmetric : Memory::device);
  }

  // `pass`: 0 forward, 1 recompute, 2 backward.
  void use_tensors(Action& a, ValueKind kind, const Draft& d, const std::vector<TensorDeclaration>& tensors, int pass,
                   Access access) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      const int instance = pass * 64 + static_cast<int>(i);
      const Cause cause = kind == ValueKind::saved ? Cause::saved : Cause::work;
      const char* name = kind == ValueKind::saved ? "saved" : "work";
      a.uses.push_back({transient(kind, d.owner, d.micro_batch, instance,
                                  in(name, d.owner, d.micro_batch) + "." + tensors[i].label, tensors[i].bytes, cause),
                        access});
    }
  }

  void use_input(Action& a, const Draft& d) {
    if (d.owner > 0) a.uses.push_back({boundary(d.owner - 1, d.micro_batch), Access::read});
    if (d.owner == 0) a.uses.push_back({batch(ValueKind::tokens, d.micro_batch), Access::read});
    if (d.owner == last_unit()) {
      a.uses.push_back({batch(ValueKind::targets, d.micro_batch), Access::read});
      a.uses.push_back({s_.find(ValueKind::loss, -1, -1), Access::accumulate});
    }
  }

  void use_backward_values(Action& a, const Draft& d) {
    const UnitDeclaration& unit = step_.units[d.owner];
    const bool recomputed = step_.recompute == Recompute::full && !unit.saved.empty();
    use_tensors(a, ValueKind::saved, d, unit.saved, recomputed ? 1 : 0, Access::consume);
    use_tensors(a, ValueKind::work, d, unit.backward_work, 2, Access::write);
    int incoming = -1;
    if (d.owner < last_unit()) {
      incoming = transient(ValueKind::boundary_gradient, d.owner, d.micro_batch, 0,
                           in("gradient", d.owner, d.micro_batch), unit.output_bytes, Cause::work);
      a.uses.push_back({incoming, d.owner > 0 ? Access::consume : Access::read});
    }
    if (d.owner > 0) {
      const int outgoing =
          transient(ValueKind::boundary_gradient, d.owner - 1, d.micro_batch, 0,
                    in("gradient", d.owner - 1, d.micro_batch), step_.units[d.owner - 1].output_bytes, Cause::work);
      s_.values[outgoing].takes_over = incoming;
      a.uses.push_back({outgoing, Access::write});
    }
    for (int g : unit.groups) {
      const bool first = slots_.insert({g, d.micro_batch}).second;
      a.uses.push_back({slot(g, d.micro_batch), first ? Access::write : Access::accumulate});
    }
  }

  void attach(Action& a, const Draft& d) {
    switch (d.kind) {
      case ActionKind::load_batch:
        a.uses = {{batch(ValueKind::tokens, d.micro_batch), Access::write},
                  {batch(ValueKind::targets, d.micro_batch), Access::write}};
        break;
      case ActionKind::unshard:
        a.uses = {{resident_parameters(d.owner), Access::read}, {parameters(d.owner, d.instance), Access::write}};
        break;
      case ActionKind::forward:
      case ActionKind::recompute: {
        const UnitDeclaration& unit = step_.units[d.owner];
        const int pass = d.kind == ActionKind::forward ? 0 : 1;
        use_parameters(a, d);
        use_input(a, d);
        if (d.kind == ActionKind::forward && unit.output_bytes > 0)
          a.uses.push_back({boundary(d.owner, d.micro_batch), Access::write});
        use_tensors(a, ValueKind::saved, d, unit.saved, pass, Access::write);
        use_tensors(a, ValueKind::work, d, unit.forward_work, pass, Access::write);
        break;
      }
      case ActionKind::backward:
        use_parameters(a, d);
        use_input(a, d);
        use_backward_values(a, d);
        break;
      case ActionKind::reduce_gradient:
        a.uses = {{slot(d.owner, d.micro_batch), Access::read},
                  {s_.find(ValueKind::gradient_shard, d.owner, -1), d.accumulate ? Access::accumulate : Access::write}};
        break;
      case ActionKind::gather_loss:
        a.uses = {{s_.find(ValueKind::loss, -1, -1), Access::read},
                  {s_.find(ValueKind::loss_all, -1, -1), Access::write}};
        break;
      case ActionKind::gather_norm:
        for (size_t g = 0; g < step_.groups.size(); ++g)
          a.uses.push_back({s_.find(ValueKind::gradient_shard, static_cast<int>(g), -1), Access::read});
        a.uses.push_back({s_.find(ValueKind::norm_partials, -1, -1), Access::write});
        a.uses.push_back({s_.find(ValueKind::norm_all, -1, -1), Access::write});
        break;
      case ActionKind::clip:
        a.uses = {{s_.find(ValueKind::norm_all, -1, -1), Access::read}};
        break;
      case ActionKind::step:
        for (ValueKind kind : {ValueKind::master, ValueKind::exp_avg, ValueKind::exp_avg_sq})
          a.uses.push_back({s_.find(kind, d.owner, -1), Access::accumulate});
        a.uses.push_back({s_.find(ValueKind::gradient_shard, d.owner, -1), Access::read});
        if (step_.compute_bytes != step_.state_bytes)
          a.uses.push_back({s_.find(ValueKind::compute_shard, d.owner, -1), Access::write});
        break;
    }
  }

  Schedule attach_values() {
    s_.name = train_ ? "train" : "evaluate";
    for (const UnitDeclaration& u : step_.units) s_.unit_names.push_back(u.name);
    for (const GroupDeclaration& g : step_.groups) s_.group_names.push_back(g.name);
    add_persistent_values();
    std::map<int, int> position;
    for (size_t i = 0; i < list_.size(); ++i) position[list_[i].id] = static_cast<int>(i);
    for (const Draft& d : list_) {
      Action a{
          .kind = d.kind, .owner = d.owner, .micro_batch = d.micro_batch, .queue = d.queue, .accumulate = d.accumulate};
      if (d.completes_before != -1)
        a.completes_at = position.at(d.completes_before == kTail ? tail_id_ : d.completes_before);
      attach(a, d);
      s_.actions.push_back(std::move(a));
    }
    return std::move(static_cast<Schedule&>(s_));
  }

  // A schedule under construction, with an index so that long lists are built in linear time.
  struct Indexed : Schedule {
    using Key = std::tuple<ValueKind, int, int, int>;
    std::map<Key, int> index;
    int find_transient(ValueKind kind, int owner, int mb, int instance) const {
      auto it = index.find({kind, owner, mb, instance});
      return it == index.end() ? -1 : it->second;
    }
    int remember(ValueKind kind, int owner, int mb, int instance, int value) {
      return index[{kind, owner, mb, instance}] = value;
    }
  };

  static constexpr int kTail = -2;
  const StepDeclaration& step_;
  bool train_;
  int next_id_ = 0;
  int tail_id_ = -1;
  std::vector<Draft> list_;
  Indexed s_;
  std::set<std::pair<int, int>> slots_;
};

}  // namespace

Schedule training_schedule(const StepDeclaration& step) { return Builder(step, true).build(); }
Schedule evaluation_schedule(const StepDeclaration& step) { return Builder(step, false).build(); }

}  // namespace trireme::schedule
