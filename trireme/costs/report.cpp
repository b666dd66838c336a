#include "trireme/costs/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <vector>

#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/plan/arithmetic.h"

namespace trireme::costs {
namespace {

using base::Activity;

constexpr double kGiga = 1e9;

double of(const Prediction& p, Activity activity) { return p.causes[static_cast<size_t>(activity)]; }

std::string money(double amount, const std::string& currency) {
  if (amount < 100) return fmt::format("{:.3g} {}", amount, currency);
  if (amount >= 1e15) return fmt::format("{:.4g} {}", amount, currency);
  return fmt::format("{} {}", base::human_count(static_cast<int64_t>(amount + 0.5)), currency);
}

// Peak FLOP/s of all ranks in the dtype of products.
double peak_of(const plan::StepPlan& plan, const Machines& machines) {
  const model::Precision& precision = plan.request.precision;
  const double cores = machines.hardware.shares_cores ? double(machines.threads) : 1;  // its figures are of one core
  return machines.hardware.peak_flops(precision.compute, precision.float8) * cores * plan.request.mesh.world_size();
}

// Of the micro-batches in the lists of all ranks, the part that a step has: some ranks have one less if they do not
// divide evenly.
double computed_part(const plan::StepPlan& plan, int64_t tokens_per_step) {
  const plan::StepRequest& r = plan.request;
  return double(tokens_per_step) / (double(r.shape.tokens()) * r.num_micro_batches * r.num_data_ranks());
}

double trained_parameters(const plan::StepPlan& plan, bool trained) {
  double sum = 0;
  for (size_t g = 0; g < plan.model->groups.size(); ++g)
    if (plan.model->groups[g].trained == trained)
      for (const model::ParameterSpec& p : plan.model->groups[g].parameters) {
        double whole = 1;
        for (const int64_t n : p.whole_shape()) whole *= double(n);
        sum += whole;
      }
  return sum;
}

/// What a rank needs, with a reference beside its arena.
int64_t bytes_of(const plan::StepPlan& plan) { return plan.arena.total() + plan::reference_bytes(plan); }

plan::MemoryReport report_of(const plan::StepPlan& plan) {
  plan::MemoryReport report = plan::memory_report(plan);
  if (const int64_t bytes = plan::reference_bytes(plan); bytes > 0)
    report.rows.emplace_back("reference (grpo.beta)", bytes);
  report.total_bytes = bytes_of(plan);
  return report;
}

/// The number of the stage whose ranks need the most.
size_t fullest(const StagePlans& stages) {
  const auto total = [](const plan::StepPlan* plan) { return bytes_of(*plan); };
  return static_cast<size_t>(std::ranges::max_element(stages, {}, total) - stages.begin());
}

// The rows add up to the whole: those that are too small to be shown are one.
std::string rows_text(const plan::MemoryReport& report) {
  constexpr int64_t kShownBytes = 5'000'000;  // 0.01 GB
  std::string out;
  int64_t others = 0;
  const auto row = [&](std::string_view cause, int64_t bytes) {
    out += fmt::format("  {:<36}{:>8.2f} GB\n", cause, double(bytes) / kGiga);
  };
  for (const plan::MemoryRow& r : report.rows)
    if (double(r.bytes) > 0.005 * double(report.total_bytes))
      row(r.cause, r.bytes);
    else
      others += r.bytes;
  if (others >= kShownBytes) row("others", others);
  return out;
}

int ranks_of_a_machine(const StagePlans& stages, const Machines& machines) {
  return static_cast<int>(std::min<int64_t>(machines.ranks, stages.front()->request.mesh.world_size()));
}

// The sum over a machine's ranks of what `bytes` says of their plans, for the machine where it is largest.
template <typename Bytes>
double of_fullest_machine(const StagePlans& stages, const Machines& machines, const Bytes& bytes) {
  const auto& mesh = stages.front()->request.mesh;
  const int ranks = ranks_of_a_machine(stages, machines);
  double most = 0;
  for (int first = 0; first < mesh.world_size(); first += ranks) {
    double all = 0;
    for (int rank = first; rank < std::min(first + ranks, mesh.world_size()); ++rank)
      all += double(bytes(*stages[static_cast<size_t>(mesh.coordinate(rank, comm::Axis::pp))]));
    most = std::max(most, all);
  }
  return most;
}

// Bytes that devices offload and a machine's memory has no room for.
double lacking_host(const StagePlans& stages, const Machines& machines) {
  const double has = machines.hardware.host_memory * kGiga;
  if (machines.hardware.shares_cores || has <= 0) return 0;
  return std::max(0.0, offloaded(stages, machines).host - has);
}

// What rests in tiers, each on a line; nothing if nothing does.
std::string offloaded_text(const StagePlans& stages, const Machines& machines) {
  const Offloaded bytes = offloaded(stages, machines);
  const double has = machines.hardware.host_memory;
  std::string out;
  if (bytes.host > 0)
    out += fmt::format("host     {:.2f} GB of a machine's memory for offload.*{}\n", bytes.host / kGiga,
                       machines.hardware.shares_cores ? ", counted above"
                       : has > 0                      ? fmt::format("; it has {:.1f} GB", has)
                                 : "; the hardware's file does not say how much it has (host.memory)");
  if (bytes.disk > 0) out += fmt::format("disk     {:.2f} GB of a machine's disk for offload.*\n", bytes.disk / kGiga);
  return out;
}

std::string memory_text(const StagePlans& stages, const Machines& machines, const std::string& next_steps) {
  const size_t stage = fullest(stages);
  const plan::MemoryReport report = report_of(*stages[stage]);
  std::string out = rows_text(report);
  const double need = needed(stages, machines), has = room(machines.hardware);
  std::string whose = machines.hardware.shares_cores ? "a machine" : "a device", of_stage;
  if (stages.size() > 1) of_stage = fmt::format(" of stage {} of {}, which needs the most", stage + 1, stages.size());
  if (!machines.hardware.shares_cores)
    whose += of_stage;
  else if (ranks_of_a_machine(stages, machines) > 1)
    out = fmt::format("  of a rank{}:\n{}", of_stage, out);
  if (machines.first_rank_bytes > 0)
    out += fmt::format("replies  up to {:.2f} GB of rank 0 for eval.max_new_tokens, counted above\n",
                       double(machines.first_rank_bytes) / kGiga);
  const double lacking = lacking_host(stages, machines);
  std::string verdict = "the hardware's file does not say how much there is";
  if (has > 0 && need > has)
    verdict = fmt::format("does NOT fit: {:.1f} GB too much for {:.1f} GB", (need - has) / kGiga, has / kGiga);
  else if (lacking > 0)
    verdict = fmt::format("does NOT fit: offload.* takes {:.1f} GB too much for {:.1f} GB of a machine's memory",
                          lacking / kGiga, machines.hardware.host_memory);
  else if (has > 0)
    verdict = fmt::format("fits: {:.1f} GB of {:.1f} GB stay free", (has - need) / kGiga, has / kGiga);
  out += offloaded_text(stages, machines);
  if (has > 0 && !fits(stages, machines) && !next_steps.empty()) out += fmt::format("try      {}\n", next_steps);
  return fmt::format("memory   {:.2f} GB {}; {}\n{}", need / kGiga, whose, verdict, out);
}

// "812.4 ms", "46.84 s".
std::string seconds_text(double seconds) {
  return seconds < 10 ? fmt::format("{:.1f} ms", 1e3 * seconds) : fmt::format("{:.2f} s", seconds);
}

std::string time_text(const plan::StepPlan& plan, const Prediction& p) {
  std::string out = fmt::format("step     {}, bound by {}\n", seconds_text(p.step), binding(p, plan));
  for (const base::ActivityName& c : base::kActivities)
    if (of(p, c.activity) > 0.0005 * p.step)
      out += fmt::format("  {:<36}{:>11}{:>7.1f} %\n", c.name, seconds_text(of(p, c.activity)),
                         100 * of(p, c.activity) / p.step);
  return out;
}

}  // namespace

double room(const Hardware& hardware) {
  if (hardware.shares_cores) return hardware.host_memory * kGiga;
  return std::max(0.0, (hardware.memory - hardware.reserved) * kGiga);
}

double needed(const StagePlans& stages, const Machines& machines) {
  if (!machines.hardware.shares_cores) return double(bytes_of(*stages[fullest(stages)]));
  const int ranks = ranks_of_a_machine(stages, machines);
  const auto bytes = [&](const plan::StepPlan& p) { return plan::bytes_on_host(p, ranks, /*shared_memory=*/true); };
  return of_fullest_machine(stages, machines, bytes) + double(machines.first_rank_bytes);
}

Offloaded offloaded(const StagePlans& stages, const Machines& machines) {
  const auto most = [&](schedule::Memory memory) {
    return of_fullest_machine(stages, machines, [&](const plan::StepPlan& p) { return p.arena.of(memory); });
  };
  return {.host = most(schedule::Memory::host), .disk = most(schedule::Memory::disk)};
}

bool fits(const StagePlans& stages, const Machines& machines) {
  return needed(stages, machines) <= room(machines.hardware) && lacking_host(stages, machines) <= 0;
}

std::string binding(const Prediction& p, const plan::StepPlan& plan) {
  const double arithmetic = of(p, Activity::products) + of(p, Activity::attention);
  const double memory = of(p, Activity::elementwise) + of(p, Activity::optimizer);
  const double inside = of(p, Activity::communication), idle = of(p, Activity::other);
  const double offload = of(p, Activity::offload);
  const double most = std::max({arithmetic, memory, inside, idle, offload});
  if (most == offload && offload > 0) return "host memory or the disk (offload.*)";
  if (most == arithmetic) return "arithmetic";
  if (most == memory) return "the memory's rate";
  if (most == inside && plan.request.size(comm::Axis::tp) * plan.request.size(comm::Axis::cp) > 1)
    return "communication inside units (mesh.tp, mesh.cp)";
  if (most == inside && plan.stages.ranks > 1) return "communication";
  if (plan.stages.ranks == 1) return "communication of weights and gradients";
  return "waits: the pipeline's idle time, and communication";
}

std::optional<Prediction> predict_if_recorded(const plan::StepPlan& plan, const Machines& machines) {
  check_figures(plan.request, machines);
  if (recorded_bytes(plan) > kMostRecordedBytes) return std::nullopt;
  return predict(*plan.model, plan, machines);
}

std::string render_plan(const StagePlans& stages, const std::optional<Prediction>& predicted, const Machines& machines,
                        const Budget& budget, int64_t tokens_per_step, const std::string& next_steps) {
  const plan::StepPlan& plan = *stages.front();
  const std::string memory = memory_text(stages, machines, next_steps);
  if (!predicted)
    return memory + fmt::format("step     not predicted: micro-batches of {} are too large for that\n",
                                base::plural(plan.request.shape.tokens(), "token"));
  const Prediction& p = *predicted;
  const double ranks = plan.request.mesh.world_size();
  std::string out = memory + time_text(plan, p);
  const double rate = double(tokens_per_step) / p.step, peak = peak_of(plan, machines);
  out += fmt::format("speed    {} tokens/s, {} a rank\n", base::human_count(static_cast<int64_t>(rate)),
                     base::human_count(static_cast<int64_t>(rate / ranks)));
  if (peak > 0) {
    const double percent = 100 * computed_part(plan, tokens_per_step) / p.step / peak;
    out += fmt::format("peak     {:.1f} % of {:.4g} TFLOP/s a rank by the model's own operations",
                       percent * p.model_flops, peak / ranks / 1e12);
    if (p.executed_flops > 1.001 * p.model_flops)
      out += fmt::format(", {:.1f} % with recomputation", percent * p.executed_flops);
    out += "\n";
  }
  if (budget.tokens) {
    const double days = *budget.tokens / rate / 86400;
    out += fmt::format("tokens   {} tokens take {}", base::human_quantity(*budget.tokens),
                       base::human_duration(days * 86400));
    if (budget.price > 0)
      out += fmt::format(" and cost {}, at {:g} {} a device and hour{}",
                         money(plan::training_cost(days, ranks, budget.price), budget.currency), budget.price,
                         budget.currency, budget.price_is);
    out += "\n";
  } else if (budget.price > 0) {
    out += fmt::format("price    {} a million tokens, at {:g} {} a device and hour{}\n",
                       money(ranks * budget.price / 3600 / rate * 1e6, budget.currency), budget.price, budget.currency,
                       budget.price_is);
  }
  return out;
}

std::string plan_json(const StagePlans& stages, const std::optional<Prediction>& p, const Machines& machines,
                      int64_t tokens_per_step, const Remarks& remarks) {
  using Json = nlohmann::ordered_json;
  const plan::StepPlan &plan = *stages.front(), &most = *stages[fullest(stages)];
  Json memory, causes;
  for (const plan::MemoryRow& row : report_of(most).rows) memory[row.cause] = row.bytes;
  for (const base::ActivityName& c : base::kActivities)
    if (p) causes[c.key] = of(*p, c.activity);
  const double peak = peak_of(plan, machines), part = computed_part(plan, tokens_per_step);
  const Offloaded elsewhere = offloaded(stages, machines);
  const auto if_predicted = [&](double number) { return p ? Json(number) : Json(); };
  const bool has_room = room(machines.hardware) > 0;
  const Json all = {{"hardware", machines.hardware.name},
                    {"ranks", plan.request.mesh.world_size()},
                    {"parameters", plan.model->config.num_parameters()},
                    {"global_batch_size", tokens_per_step / plan.request.shape.sequence},
                    {"memory_bytes", needed(stages, machines)},
                    {"memory_stage", fullest(stages)},
                    {"room_bytes", room(machines.hardware)},
                    {"fits", has_room ? Json(fits(stages, machines)) : Json()},
                    {"memory", memory},
                    {"host_bytes", elsewhere.host},
                    {"host_room_bytes", machines.hardware.host_memory * kGiga},
                    {"disk_bytes", elsewhere.disk},
                    {"step_seconds", if_predicted(p ? p->step : 0)},
                    {"causes_seconds", causes},
                    {"tokens_per_second", if_predicted(p ? double(tokens_per_step) / p->step : 0)},
                    {"model_flops", if_predicted(p ? part * p->model_flops : 0)},
                    {"executed_flops", if_predicted(p ? part * p->executed_flops : 0)},
                    {"peak_fraction", if_predicted(p && peak > 0 ? part * p->model_flops / p->step / peak : 0)},
                    {"refused", remarks.refused.empty() ? Json() : Json(remarks.refused)},
                    {"warnings", remarks.warnings}};
  return base::json_text(all, 2) + "\n";
}

std::string render_arithmetic(const plan::StepPlan& plan, const Machines& machines, const Budget& budget,
                              int64_t tokens_per_step) {
  const model::ModelConfig& c = plan.model->config;
  const plan::StepRequest& r = plan.request;
  const double trained = trained_parameters(plan, true), frozen = trained_parameters(plan, false);
  const double n = trained + frozen, ranks = r.num_shards();
  const auto gb = [](double bytes) { return fmt::format("{:.4g} GB", bytes / kGiga); };
  std::string out = "By hand\n";
  const auto line = [&](const std::string& what, const std::string& text) {
    out += fmt::format("  {:<14}{}\n", what, text);
  };

  line("parameters", fmt::format("N = {}", base::human_quantity(n)));
  if (frozen > 0) {
    line("adapters", fmt::format("{} are trained, {:.3g} % of all", base::human_quantity(trained), 100 * trained / n));
    line("", fmt::format("LoRA   2 N + 16 x trained      = {}", gb(plan::adapter_tuning_bytes(frozen, 16, trained))));
    line("", fmt::format("QLoRA  0.516 N + 16 x trained  = {}",
                         gb(plan::adapter_tuning_bytes(frozen, plan::kNestedNf4Bits, trained))));
    line("all weights", fmt::format("16 N = {} would be their states if all were trained", gb(16 * n)));
  } else {
    line("states", fmt::format("12 N = {}  bf16 weights and gradients, moments in fp32, no masters", gb(12 * n)));
    line("", fmt::format("16 N = {}  with masters in fp32, or everything in fp32", gb(16 * n)));
    line("", fmt::format(
                 "18 N = {}  with masters, and gradients summed in fp32: what Trireme does in bf16-mixed with AdamW",
                 gb(18 * n)));
  }
  const int tp = r.size(comm::Axis::tp), cp = r.size(comm::Axis::cp), stages = plan.stages.ranks;
  if (ranks > 1) {
    const double part = trained / tp / stages;  // of a rank's stage and matrices
    std::string divided = tp > 1 ? fmt::format(" / tp {}", tp) : "";
    if (stages > 1) divided += fmt::format(" / pp {}", stages);
    line("ZeRO",
         fmt::format("16 {}{} over {} ranks: stage 0 {}, 1 {}, 2 {}, 3 {} a rank", frozen > 0 ? "x trained" : "N",
                     divided, ranks, gb(plan::zero_bytes(0, part, ranks)), gb(plan::zero_bytes(1, part, ranks)),
                     gb(plan::zero_bytes(2, part, ranks)), gb(plan::zero_bytes(3, part, ranks))));
    line("", fmt::format(
                 "they save {:.3g}, {:.3g} and {:.3g} times: optimizer state is divided, then gradients, then weights",
                 plan::zero_saving(1, ranks), plan::zero_saving(2, ranks), plan::zero_saving(3, ranks)));
  }
  const plan::LayerShape layer{.sequence = double(r.shape.sequence),
                               .micro_batch = double(r.shape.micro_batch) / cp,  // whose ranks divide tokens, not keys
                               .hidden = double(c.hidden_size),
                               .heads = double(c.num_attention_heads),
                               .tensor_parallel = double(tp),
                               .sequence_parallel = r.sequence_parallel};
  const double layers = double(c.num_hidden_layers) / plan.stages.ranks;
  line("activations", fmt::format("s b h (34 + 5 a s / h){} a layer of GPT = {}; {:g} layers {}",
                                  cp > 1 ? fmt::format(" / cp {}", cp) : "", gb(plan::activation_bytes(layer)), layers,
                                  gb(layers * plan::activation_bytes(layer))));
  line("", fmt::format("without scores, as flash attention leaves them: {}; with recomputation of all: {}",
                       gb(layers * plan::activation_bytes(layer, plan::ActivationsKept::selective)),
                       gb(layers * plan::activation_bytes(layer, plan::ActivationsKept::inputs))));
  int64_t saved = 0;
  const plan::MemoryReport report = plan::memory_report(plan);
  for (const plan::MemoryRow& row : report.rows)
    if (row.cause == schedule::name_of(schedule::Cause::saved)) saved = row.bytes;
  line("", fmt::format("this plan saves {}: this model's own tensors, not GPT's", gb(double(saved))));

  // Frozen weights pass gradients on to those before them, and need none of their own.
  const double per_token = 6 * trained + 4 * frozen;
  const char* const each = frozen > 0 ? "6 x trained + 4 x frozen" : "6 N";
  const std::optional<double> tokens =
      budget.tokens || frozen > 0 ? budget.tokens : std::optional(plan::chinchilla_tokens(n));
  line("operations",
       fmt::format("{} = {:.4g} GFLOP a token{}", each, per_token / kGiga,
                   !tokens ? ""
                           : fmt::format("; {} = {:.4g} for D = {} tokens{}", frozen > 0 ? "times D" : "6 N D",
                                         per_token * *tokens, base::human_quantity(*tokens),
                                         budget.tokens ? "" : ", 20 a parameter (Chinchilla)")));
  if (frozen == 0) {
    const plan::Chinchilla best = plan::chinchilla_optimal(per_token * *tokens);
    line("Chinchilla",
         fmt::format("these operations train best {} parameters on {} tokens, to {:.3g} nats",
                     base::human_quantity(best.parameters), base::human_quantity(best.tokens), best.loss));
  }
  const double peak = peak_of(plan, machines), world = r.mesh.world_size();
  if (peak > 0 && tokens) {
    const double days = plan::training_days(per_token * *tokens, world, peak / world, 0.4);
    line("time", fmt::format("at 40 % of the peak {}{}", base::human_duration(days * 86400),
                             budget.price > 0
                                 ? fmt::format(" and {}",
                                               money(plan::training_cost(days, world, budget.price), budget.currency))
                                 : ""));
  }
  const std::vector<int>&reduce = plan.groups.reduce, &gather = plan.groups.gather;
  if (machines.hardware.inside.rate > 0 && reduce.size() > 1) {
    const double bytes = trained / r.size(comm::Axis::tp) / plan.stages.ranks * 2, rate = ring_rate(machines, reduce);
    line("all-reduce",
         fmt::format("2 (N - 1) / N x {} / {:g} GB/s = {:.4g} ms, for gradients of 2 bytes in a ring of {}", gb(bytes),
                     rate, 1e3 * plan::ring_all_reduce_seconds(double(reduce.size()), bytes, 1e9 * rate),
                     reduce.size()));
  }
  if (machines.hardware.inside.rate > 0 && gather.size() > 1)
    line("gathers",
         fmt::format("hide behind arithmetic from {:.0f} tokens a rank and micro-batch on, at half the peak; here {}",
                     plan::tokens_that_hide_gathers(2, 0.5 * peak / world, 1e9 * ring_rate(machines, gather)),
                     r.shape.tokens() / cp));
  if (plan.stages.ranks > 1)
    line("bubble",
         fmt::format("(p - 1) / (m + p - 1) = {:.1f} % of a 1F1B step for p = {} and m = {}; explain schedule "
                     "draws this run's schedule",
                     100 * plan::bubble_fraction(plan.stages.ranks, r.num_micro_batches), plan.stages.ranks,
                     r.num_micro_batches));
  line("batch", fmt::format("{} tokens a step", base::human_count(tokens_per_step)));
  return out;
}

}  // namespace trireme::costs
