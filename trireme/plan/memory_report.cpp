#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "trireme/optim/adafactor.h"
#include "trireme/plan/step_plan.h"

namespace trireme::plan {
namespace {

using schedule::Cause;

/// A cause, and which parameters it concerns if some of a model's are frozen; "" if it concerns none, or all.
using Share = std::pair<Cause, std::string>;

/// The shares of a value that belongs to a group of parameters: frozen ones, those of adapters, other trained ones.
std::vector<std::pair<Share, int64_t>> shares_of(const StepPlan& plan, const schedule::Value& v) {
  const int64_t bytes = schedule::aligned(v.bytes);
  const bool of_group = v.cause == Cause::weights || v.cause == Cause::optimizer || v.cause == Cause::gradients ||
                        v.cause == Cause::unsharded || v.cause == Cause::slots;
  const auto is_frozen = [](const GroupStorage& storage) { return !storage.trained; };
  if (!of_group || std::ranges::none_of(plan.storage, is_frozen)) return {{{v.cause, ""}, bytes}};
  const auto group = static_cast<size_t>(v.owner);
  if (const base::BlockFormatTraits& blocks = base::traits_of(plan.storage[group].quantized); blocks.blocks())
    return {{{v.cause, fmt::format(": {}", blocks.name)}, bytes}};
  if (!plan.storage[group].trained) return {{{v.cause, ": frozen"}, bytes}};
  int64_t adapters = 0, all = 0;
  for (const model::ParameterSpec& p : plan.model->groups[group].parameters) {
    all += p.numel();
    if (model::is_adapter(p.name)) adapters += p.numel();
  }
  const int64_t of_adapters = bytes / all * adapters + bytes % all * adapters / all;
  return {{{v.cause, ": adapters"}, of_adapters}, {{v.cause, ": trained"}, bytes - of_adapters}};
}

}  // namespace

MemoryReport memory_report(const StepPlan& plan) {
  const schedule::Schedule& s = plan.main();
  const int peak = schedule::peak_action(s);
  MemoryReport report;
  report.total_bytes = plan.arena.total();
  report.private_bytes = plan.arena.private_bytes();
  report.host_shared_bytes = plan.arena.host_shared_bytes();
  report.peak_action = schedule::describe(s, s.actions[peak]);
  report.on_gpu = plan.request.precision.on_gpu;
  std::map<Share, int64_t> by_share;
  std::array<std::map<Share, int64_t>, schedule::kNumMemories> resting;
  for (const schedule::Value& v : s.values)
    if (schedule::is_tier(v.memory) && v.persistent)
      for (const auto& [share, bytes] : shares_of(plan, v)) resting[static_cast<size_t>(v.memory)][share] += bytes;
  const auto rows_of = [&](schedule::Memory memory) {
    std::vector<MemoryRow> rows;
    for (const auto& [share, bytes] : resting[static_cast<size_t>(memory)])
      rows.push_back({schedule::name_of(share.first) + share.second, bytes});
    // Of what does not persist: sums of gradients, which are all there between two micro-batches, and activations.
    int64_t gradients = 0, transient = plan.arena.of(memory) - plan.arena.persistent[static_cast<size_t>(memory)];
    for (const schedule::Value& v : s.values)
      if (v.memory == memory && !v.persistent && v.cause == Cause::gradients && v.first >= 0)
        gradients += schedule::aligned(v.bytes);
    if (gradients > 0) rows.push_back({schedule::name_of(Cause::gradients), gradients});
    if (transient -= gradients; transient > 0) rows.push_back({schedule::name_of(Cause::saved), transient});
    return rows;
  };
  report.host = rows_of(schedule::Memory::host);
  report.disk = rows_of(schedule::Memory::disk);
  for (const schedule::Value& v : s.values)
    if (!schedule::is_tier(v.memory) && (v.persistent || (v.first <= peak && peak <= v.last && v.first >= 0))) {
      // A value that takes over another's bytes counts once, for the one before it.
      if (v.takes_over >= 0 && s.values[v.takes_over].last >= peak) continue;
      for (const auto& [share, bytes] : shares_of(plan, v)) by_share[share] += bytes;
    }
  int64_t sum = 0;
  for (const auto& [share, bytes] : by_share) {
    report.rows.push_back({schedule::name_of(share.first) + share.second, bytes});
    sum += bytes;
  }
  report.rows.emplace_back("placement and other lists", report.total_bytes - sum);
  std::array<int64_t, schedule::kNumMemories> bound{};
  for (const schedule::ListTraits& traits : schedule::kLists) {
    const schedule::Schedule& list = plan.lists[traits.list];
    int64_t most = 0;
    for (const auto& live : schedule::live_bytes(list)) {
      for (int m = 0; m < schedule::kNumMemories; ++m)
        if (!schedule::is_tier(static_cast<schedule::Memory>(m))) bound[m] = std::max(bound[m], live[m]);
      most = std::max(most, schedule::own_bytes(live));
    }
    if (!plan.lists[schedule::List::generate].actions.empty() && plan.request.trains)
      report.phases.emplace_back(traits.list == schedule::List::train      ? "  training"
                                 : traits.list == schedule::List::evaluate ? "  log-probabilities, evaluation"
                                                                           : "  answers, with their cache",
                                 most);
  }
  if (plan.request.lent_bytes > 0) {
    int64_t persistent = 0;
    for (int m = 0; m < schedule::kNumMemories; ++m)
      if (!schedule::is_tier(static_cast<schedule::Memory>(m)))
        persistent += plan.arena.persistent[static_cast<size_t>(m)];
    const int64_t lent = schedule::aligned(plan.request.lent_bytes);
    report.phases.emplace_back("  answers in few bits, with cache", persistent + lent);
    int64_t& own = bound[static_cast<size_t>(schedule::Memory::own)];
    own = std::max(own, plan.lent_begin() + lent);
  }
  // The action is one of the first list, training; another phase has none that would say more than its name.
  if (const auto most = std::ranges::max_element(report.phases, {}, &MemoryRow::bytes);
      most != report.phases.begin() && most != report.phases.end())
    report.peak_action = most->cause.substr(most->cause.find_first_not_of(' '));
  report.lower_bound_bytes = std::accumulate(bound.begin(), bound.end(), int64_t{0});
  return report;
}

int64_t reference_bytes(const StepPlan& plan) {
  int64_t bytes = 0;
  for (const int g : plan.local_groups)
    if (const GroupStorage& storage = plan.storage[g]; storage.trained)
      bytes += plan.held(g).size() *
               static_cast<int64_t>(c10::elementSize(storage.compute) + c10::elementSize(storage.master));
  return plan.request.keeps_reference ? bytes : 0;
}

int64_t bytes_on_host(const StepPlan& plan, int64_t ranks, bool shared_memory) {
  const auto share = [&](const std::vector<int>& group, int64_t bytes) {
    const bool here = std::ranges::all_of(group, [&](int rank) { return rank < ranks; });
    return shared_memory && here ? bytes / static_cast<int64_t>(group.size()) : bytes;
  };
  return plan.arena.private_bytes() + reference_bytes(plan) + plan.arena.of(schedule::Memory::host) +
         share(plan.groups.gather, plan.arena.of(schedule::Memory::host_shared)) +
         share(plan.groups.reduce, plan.arena.of(schedule::Memory::host_reduced));
}

std::string describe_tiers(const MemoryReport& report) {
  std::string out;
  for (const auto& [where, rows] : {std::pair{"in host memory", &report.host}, {"on disk", &report.disk}}) {
    int64_t sum = 0;
    for (const MemoryRow& row : *rows) sum += row.bytes;
    if (sum > 0) out += fmt::format("{} {:.0f} MiB {}", out.empty() ? ";" : ",", double(sum) / (1 << 20), where);
  }
  return out;
}

std::string render_memory(const MemoryReport& report) {
  const double mib = 1 << 20;
  int64_t largest = 1;
  for (const MemoryRow& row : report.rows) largest = std::max(largest, row.bytes);
  std::string out = fmt::format("{:<32}{:>14}\n", "", "MiB a rank");
  for (const MemoryRow& row : report.rows)
    if (row.bytes != 0)
      out += fmt::format("{:<32}{:>14.2f}  |{}\n", row.cause, double(row.bytes) / mib,
                         std::string(static_cast<size_t>(24 * std::max<int64_t>(0, row.bytes) / largest), '#'));
  out += fmt::format("{:<32}{:>14.2f}            at {}\n", "planned peak", double(report.total_bytes) / mib,
                     report.peak_action);
  for (const MemoryRow& row : report.phases)
    out += fmt::format("{:<32}{:>14.2f}  at most, in the same memory\n", row.cause, double(row.bytes) / mib);
  for (const auto& [where, rows] : {std::pair{"in host memory", &report.host}, {"on disk", &report.disk}}) {
    if (rows->empty()) continue;
    int64_t sum = 0;
    std::string causes;
    for (const MemoryRow& row : *rows) {
      sum += row.bytes;
      causes += fmt::format("{}{} {:.2f}", causes.empty() ? "" : ", ", row.cause, double(row.bytes) / mib);
    }
    out += fmt::format("{:<32}{:>14.2f}  {}\n", where, double(sum) / mib, causes);
  }
  out += fmt::format("  {} bytes: {}no placement needs less than {} ({:.2f} % below)\n", report.total_bytes,
                     report.on_gpu ? ""
                                   : fmt::format("{} private, {} once per host where ranks share memory; ",
                                                 report.private_bytes, report.host_shared_bytes),
                     report.lower_bound_bytes,
                     100.0 * double(report.total_bytes - report.lower_bound_bytes) / double(report.total_bytes));
  return out;
}

namespace {

// Bytes a parameter: `whole` on every rank, `divided` among the N that share the state.
struct Formula {
  const char* strategy;
  double whole, divided;
  std::string text() const {
    std::string out = whole > 0 ? fmt::format("{:g}P", whole) : "";
    if (divided > 0) out += fmt::format("{}{:g}P/N", out.empty() ? "" : " + ", divided);
    return out;
  }
};

// Bytes of an element.
struct Kept {
  double weights, master, gradient, optimizer;
  bool mixed;  ///< weights and masters are two tensors
};

std::array<Formula, 4> formulas(const Kept& k) {
  const double master = k.mixed ? k.master : 0;  // otherwise the weights are their own masters
  return {{{"no_shard (DDP)", k.weights + k.gradient + master + k.optimizer, 0},
           {"zero1", k.weights + k.gradient, master + k.optimizer},
           {"shard_grad_op (ZeRO-2)", k.weights, k.gradient + master + k.optimizer},
           {"full_shard (ZeRO-3)", 0, k.weights + k.gradient + master + k.optimizer}}};
}

// Where the formulas differ from the textbook's, and why.
std::string remark(const Kept& k) {
  if (!k.mixed)
    return "  one dtype throughout: the weights are their own masters. Slots and unsharded units are rows of their\n"
           "  own above.\n";
  const std::string gradients =
      k.gradient > k.weights
          ? fmt::format(
                "gradients stay in fp32 (+{:g} bytes; not with precision.gradients compute), so that a sum over\n"
                "  micro-batches loses no bits; ",
                k.gradient - k.weights)
          : "gradients are summed in the dtype of weights in units, as in the textbook; ";
  return "  here " + gradients +
         "full_shard keeps the shard in that dtype too (2/N: once for the N ranks\n"
         "  together), so that a gather converts nothing. Slots and unsharded units are rows of their own above.\n";
}

}  // namespace

namespace {

// Elements of a group's state of other shapes than the parameters', on all of its owners.
double whole_state_of(const StepPlan& plan, int g) {
  double elements = 0;
  if (!plan.storage[g].trained) return 0;
  for (const model::ParameterSpec& p : plan.model->groups[static_cast<size_t>(g)].parameters)
    for (const optim::WholeState& state : optim::whole_state(plan.storage[g].rule, p.whole_shape()))
      elements += double(state.floats(p));
  return elements;
}

}  // namespace

std::string render_states(const StepPlan& plan) {
  const model::Precision& precision = plan.request.precision;
  const auto bytes = [](at::ScalarType dtype) { return double(c10::elementSize(dtype)); };
  double parameters = 0, frozen = 0, in_blocks = 0, block_bytes = 0;
  double kept = 0;  // elements of optimizer state
  for (int g : plan.local_groups) {
    double elements = 0;  // without what fills layouts up
    for (const model::ParameterSpec& p : plan.model->groups[static_cast<size_t>(g)].parameters)
      elements += double(p.numel());
    if (plan.storage[g].quantized != base::BlockFormat::none) {
      in_blocks += elements;
      block_bytes += double(plan.layouts[g].numel());
      continue;
    }
    plan.storage[g].trained ? parameters += elements : frozen += elements;
    kept +=
        elements * double(plan.storage[g].optimizer_state.size() + static_cast<size_t>(plan.storage[g].compensated));
    kept += whole_state_of(plan, g);
  }
  const Kept here{.weights = bytes(precision.compute),
                  .master = bytes(precision.master()),
                  .gradient = bytes(precision.gradient_sum()),
                  .optimizer = parameters > 0 ? kept / parameters * bytes(precision.master()) : 0,
                  .mixed = precision.compute != precision.master()};
  Kept textbook = here;
  textbook.gradient = here.weights;
  const int axes = plan.request.size(comm::Axis::shard) * plan.request.size(comm::Axis::cp);
  const int shards = std::max(plan.request.num_shards(), axes);
  const auto mib = [&](const Formula& f) { return (f.whole + f.divided / shards) * parameters / (1 << 20); };
  std::string out = fmt::format("model states a rank: P = {:.2f} M parameters of its stages, N = {} shards\n",
                                parameters / 1e6, shards);
  out += fmt::format("{:<24}{:>16}{:>12}{:>18}{:>12}\n", "", "here", "MiB", "textbook", "MiB");
  const auto ours = formulas(here), book = formulas(textbook);
  for (size_t i = 0; i < ours.size(); ++i)
    out += fmt::format("{:<24}{:>16}{:>12.1f}{:>18}{:>12.1f}\n", ours[i].strategy, ours[i].text(), mib(ours[i]),
                       book[i].text(), mib(book[i]));
  out += remark(here);
  if (frozen > 0)
    out += fmt::format("  {:.2f} M more parameters are frozen: weights of {} bytes and nothing else.\n", frozen / 1e6,
                       c10::elementSize(precision.compute));
  if (in_blocks > 0)
    out += fmt::format("  {:.2f} M more are frozen in {}: {:.3f} bits each.\n", in_blocks / 1e6,
                       base::traits_of(plan.model->config.quantized).name, 8 * block_bytes / in_blocks);
  if (plan.request.steps_in_backward)
    out += "  optimizer.in_backward: a group's gradient ends with its step. Above are those of the peak.\n";
  if (plan.request.accumulation == Accumulation::sharded && !precision.on_gpu)
    out += "  Over shm the ranks of one host share a copy of whole gradients.\n";
  return out;
}

}  // namespace trireme::plan
