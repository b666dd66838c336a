// trireme plan: what a training would need and take, on hardware that need not be here.
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/named_file.h"
#include "trireme/base/text.h"
#include "trireme/bench/measure.h"
#include "trireme/checkpoint/good.h"
#include "trireme/cli/command.h"
#include "trireme/cli/explain.h"
#include "trireme/cli/plan.h"
#include "trireme/cli/read_settings.h"
#include "trireme/cli/training.h"
#include "trireme/config/choices.h"
#include "trireme/config/report.h"
#include "trireme/costs/report.h"
#include "trireme/engine/device.h"
#include "trireme/observe/work_bar.h"
#include "trireme/settings/derived.h"
#include "trireme/settings/validate.h"
#include "trireme/train/resume_settings.h"
#include "trireme/train/setup.h"

namespace trireme::cli {
namespace {

struct PlanView {
  std::string cluster = "8xH100";
  std::optional<double> tokens, price;
  std::optional<std::string> fit, json;
  bool explain = false, table = false;
};

config::Section section(PlanView& view) {
  return {
      .name = "",
      .title = "options",
      .rows = {{"cluster", &view.cluster,
                "machines x devices x hardware: 8x8xH100, 4xA100-80, this, or a file; trireme plan --help lists names"},
               {"tokens",
                &view.tokens,
                "tokens of the whole training, for its days and its price",
                {.above = 0, .absent = "null", .example = "1e12"}},
               {"price",
                &view.price,
                "of a device and hour",
                {.above = 0, .absent = "null", .when_absent = "the example in the hardware's file", .example = "2.5"}},
               {"fit",
                &view.fit,
                "find the largest value that fits: micro_batch or sequence",
                {.absent = "null", .classes = {"micro_batch", "sequence"}, .example = "micro_batch"}},
               {"json",
                &view.json,
                "file for the figures as JSON (keys: docs/planning.md)",
                {.absent = "none", .example = "plan.json", .writes_file = true}},
               {"explain", &view.explain, "print the arithmetic that a person would do"},
               {"table", &view.table, "print which layout models of several sizes need on several clusters, and end"}}};
}

bool fits(const Settings& settings, const costs::Machines& machines) {
  const ExplainedStages stages = plans_of_stages(settings, stages_that_count(settings, machines));
  return costs::fits(stages_of(stages.plans), machines);
}

/// A rank of the stage that needs the most.
int fullest_rank(const Settings& settings) {
  const ExplainedStages stages = plans_of_stages(settings, plan::PlacedStages::fullest);
  return std::ranges::max_element(stages.plans, {}, [](const plan::StepPlan& p) { return p.arena.total(); })
      ->request.rank;
}

constexpr int64_t kUsualTries = 12, kMostAtOnce = 4096;

// Of `most` numbers, the first of which fits most easily, the last that fits; 0: none. By doubling and halving steps.
int64_t last_that_fits(int64_t most, const std::function<bool(int64_t)>& fit) {
  int64_t good = 0, bad = most + 1;
  for (int64_t n = 1; n < bad; n = std::min(2 * n, bad)) (fit(n) ? good : bad) = n;
  while (bad - good > 1) {
    const int64_t middle = good + (bad - good) / 2;
    (fit(middle) ? good : bad) = middle;
  }
  return good;
}

// A global batch that the user gave stays: only micro-batches that divide it come into question.
std::vector<int64_t> micro_batches_of(Settings s) {
  const int64_t batch = s.train.global_batch_size, world = world_size(s);
  const int64_t most = std::max<int64_t>(1, batch / mesh_shape(s, world).data_parallel_ranks());
  std::vector<int64_t> sizes;
  std::optional<UsageError> refusal;
  for (int64_t n = 1; n <= std::min(most, kMostAtOnce); ++n) {
    if (batch % n != 0) continue;
    s.train.micro_batch_size = n;
    try {
      validate(s, world);  // a pipeline may ask for rounds of micro-batches
      sizes.push_back(n);
    } catch (const UsageError& error) {
      refusal = error;
    }
  }
  if (sizes.empty()) throw UsageError(*refusal);
  return sizes;
}

// What takes less memory, and is not done yet.
std::string next_steps(const Settings& s) {
  const bool adapts = s.lora.r || s.lora.initial_adapter;
  std::string text;
  if (s.train.micro_batch_size > 1) text += "--train.micro_batch_size 1, ";
  if (s.recompute.mode != schedule::Recompute::full) text += "--recompute full, ";
  if (plan::on_one_copy(s.strategy) != plan::Strategy::full_shard && world_size(s) > 1)
    text += "--strategy full_shard, ";
  if (!adapts && s.task != train::Learning::classify && !model::config_of(s.model).is_free())
    text += "adapters (--lora.r 8), ";
  if (adapts && s.model.quantize == base::BlockFormat::none && s.accelerator != engine::Accelerator::cuda)
    text += "--quantize bnb.nf4, ";
  return text + "shorter sequences (--train.max_seq_length) or more devices (--cluster)";
}

// Whether a value fits. It is set then; else the least is.
bool fit_setting(Settings& s, const std::string& what, const costs::Machines& machines,
                 std::optional<int64_t> batch_to_round) {
  if (costs::room(machines.hardware) <= 0)
    throw UsageError(
        fmt::format("error: --fit needs the memory of {}, and its file does not say it", machines.hardware.name));
  const int64_t longest = model::config_of(s.model).longest_sequence();
  const bool batches = what == "micro_batch";
  const int64_t unit = batches ? 1 : std::min<int64_t>(256, longest);
  const std::vector<int64_t> divisors = batches && !batch_to_round ? micro_batches_of(s) : std::vector<int64_t>();
  const int64_t most = divisors.empty() ? (batches ? kMostAtOnce : longest) / unit : std::ssize(divisors);
  const auto value = [&](int64_t n) { return divisors.empty() ? n * unit : divisors[static_cast<size_t>(n - 1)]; };
  const auto set = [&](int64_t n) {
    (batches ? s.train.micro_batch_size : s.train.max_seq_length.emplace()) = value(n);
    if (batch_to_round) round_batch(s, *batch_to_round);
  };
  if (batches) set(1);
  // Of the stages of a pipeline on devices, one decides; all are looked at again in the end.
  const bool staged =
      stages_that_count(s, machines) == plan::PlacedStages::fullest && mesh_shape(s, world_size(s)).pp > 1;
  const int rank = staged ? fullest_rank(s) : 0;
  bench::Progress progress("plan");
  int64_t tried = 0;
  int64_t found = last_that_fits(most, [&](int64_t n) {
    set(n);
    ++tried;
    progress.step(tried, std::max(tried, kUsualTries),
                  fmt::format("micro-batches of {} x {} tokens", s.train.micro_batch_size,
                              train::sequence_length(s, model::config_of(s.model))));
    if (!staged) return fits(s, machines);
    const Explained e = plan_of(s, rank);
    return costs::needed({&e.plan}, machines) <= costs::room(machines.hardware);
  });
  set(std::max<int64_t>(1, found));
  for (; staged && found > 1 && !fits(s, machines); --found) set(found - 1);
  const char* name = batches ? "train.micro_batch_size" : "train.max_seq_length";
  if (found > 0)
    fmt::print("fit      the largest {} that fits is {}\n", name, base::human_count(value(found)));
  else
    fmt::print("fit      no {} fits, not even {}; try {}\n", name, base::human_count(value(1)), next_steps(s));
  return found > 0;
}

std::string known_hardware() {
  std::string out = "Hardware that is known (configs/hardware; a file of your own may have the same keys):\n";
  for (const std::string& name : costs::hardware_names()) {
    const costs::Hardware h = costs::read_hardware(name);
    out += fmt::format("  {:<10} {:>5.0f} GB  {:>6.0f} TFLOP/s  {:>5.0f} GB/s  {}\n", name, h.memory,
                       std::max(h.peak.bf16, h.peak.fp16), h.memory_rate, h.about.substr(0, h.about.find('.')));
  }
  return out;
}

// A run that is resumed keeps what it learns with, on any cluster.
bool is_settled(const ParsedSettings& parsed, const std::string& key) {
  return parsed.given(key) || parsed.provenance.at(key).kind == config::Source::Kind::checkpoint;
}

constexpr const char* kPlanUsage =
    "trireme plan: what a training would need and take, on hardware that need not be here\n"
    "  trireme plan llama-3-8b --cluster 8xH100 --recompute full --tokens 15e12\n"
    "  trireme plan llama-3-70b --cluster 8x8xH100 --mesh.tp 8 --fit micro_batch\n"
    "  trireme plan llama-2-7b --cluster 2xRTX-4090 --lora.r 8 --train.micro_batch_size 1 --explain\n"
    "  trireme plan --table                              which layout models need on several clusters\n"
    "  trireme plan llama-32m --cluster 2xthis           after trireme bench calibrate\n\n"
    "It takes every setting of trireme pretrain. Memory is exact; times are predicted (docs/planning.md).\n\n";

}  // namespace

plan::PlacedStages stages_that_count(const Settings& s, const costs::Machines& machines) {
  return machines.hardware.shares_cores || s.offload.any() || s.offload.fit ? plan::PlacedStages::all
                                                                            : plan::PlacedStages::fullest;
}

costs::StagePlans stages_of(const std::vector<plan::StepPlan>& plans) {
  costs::StagePlans stages;
  for (const plan::StepPlan& p : plans) stages.push_back(&p);
  return stages;
}

std::string refused_on_gpus(const plan::StepPlan& plan, const Settings& s) try {
  if (s.accelerator == engine::Accelerator::cuda) engine::check_gpu(*plan.model, plan.request, s.engine.poison);
  return "";
} catch (const UsageError& error) {
  return error.what();
}

std::string settle(ParsedSettings& parsed, const costs::Hardware& hardware) {
  Settings& s = parsed.settings;
  if (hardware.shares_cores) return "";
  if (!parsed.given("accelerator")) s.accelerator = engine::Accelerator::cuda;
  if (is_settled(parsed, "precision")) return "";
  const bool has_bf16 = hardware.peak.bf16 > 0;
  s.precision.format = has_bf16 ? model::NumberFormat::bf16_mixed : model::NumberFormat::fp32_true;
  return has_bf16 ? ""
                  : fmt::format("{} has no bfloat16, and 16-mixed is not built for GPUs yet: precision is 32-true",
                                hardware.name);
}

std::string settle(ParsedSettings& parsed, const costs::Cluster& cluster) {
  Settings& s = parsed.settings;
  if (!parsed.given("devices")) s.devices = cluster.devices;
  if (!parsed.given("num_nodes")) s.num_nodes = cluster.machines;
  return settle(parsed, cluster.hardware);
}

void round_batch(Settings& s, int64_t asked) {
  const int64_t each = s.train.micro_batch_size * mesh_shape(s, world_size(s)).data_parallel_ranks();
  s.train.global_batch_size = std::max<int64_t>(1, asked / each) * each;
}

int run_plan(Arguments arguments) {
  if (const auto code = answer_help(arguments, kPlanUsage + known_hardware())) return *code;
  PlanView view;
  ParsedSettings parsed = read_settings(arguments, {.command = "plan", .own = {section(view)}});
  if (parsed.help) {
    fmt::print("{}{}", kPlanUsage, known_hardware());
    return 0;
  }
  if (view.table) {
    const auto asks_for_it = [](const std::string& word) { return word.starts_with("--table") || word == "true"; };
    if (!std::ranges::all_of(arguments, asks_for_it))
      throw UsageError(
          "error: plan --table always shows the same models and clusters; leave the other words out, or leave out "
          "--table and name a model and its --cluster");
    fmt::print("{}", strategy_table());
    return 0;
  }
  validate_places(std::vector<config::Section>{section(view)});
  train::place_run(parsed);
  // A run that is not here is no reason not to plan.
  if (const train::Resume& resume = parsed.settings.resume;
      resume.from != train::Resume::From::folder && !checkpoint::find_latest(parsed.settings.out_dir))
    parsed.settings.resume = {};
  train::take_over_run(parsed);
  const costs::Cluster cluster = costs::parse_cluster(view.cluster);
  const std::string remark = settle(parsed, cluster);
  complete_plan(parsed);  // by the number of ranks
  Settings& s = parsed.settings;
  if (model::config_of(s.model).num_parameters() == 0) throw UsageError("error: the model has no parameters");
  costs::Machines machines{
      .hardware = cluster.hardware, .ranks = s.devices.value_or(1), .threads = train::threads_of_a_rank(s)};
  std::optional<int64_t> batch_to_round;
  if (!is_settled(parsed, "train.global_batch_size")) batch_to_round = s.train.global_batch_size;
  if (batch_to_round) round_batch(s, *batch_to_round);
  const bool fitted = !view.fit || fit_setting(s, *view.fit, machines, batch_to_round);
  std::optional<observe::Waiting> waiting(std::in_place, "planning");
  const ExplainedStages explained = plans_of_stages(s, stages_that_count(s, machines));
  const costs::StagePlans stages = stages_of(explained.plans);
  const plan::StepPlan& first = *stages.front();
  const costs::Prediction p = costs::predict(*first.model, first, machines);
  waiting.reset();
  const int64_t tokens = s.train.global_batch_size * first.request.shape.sequence;
  const costs::Budget budget{
      .tokens = view.tokens,
      .price = view.price.value_or(cluster.hardware.price),
      .currency = cluster.hardware.currency,
      .price_is = view.price ? "" : fmt::format(" (an example of {})", cluster.hardware.price_date)};
  const MeshShape mesh = mesh_shape(s, world_size(s));
  fmt::print(
      "model    {}, {} parameters\nranks    {} on {} of {}: {}, pp {} x replicate {} x shard {} x cp {} x tp {}, "
      "{}\n",
      s.model.name, base::human_quantity(double(first.model->config.num_parameters())), world_size(s),
      base::plural(s.num_nodes, "machine"), cluster.hardware.name, config::name_of(s.strategy), mesh.pp, mesh.replicate,
      mesh.shard, mesh.cp, mesh.tp, config::name_of(number_format(s)));
  fmt::print("a step   {} of {}, {} at a time on each rank\n", base::plural(s.train.global_batch_size, "sequence"),
             base::plural(first.request.shape.sequence, "token"), s.train.micro_batch_size);
  fmt::print("{}", costs::render_plan(stages, p, machines, budget, tokens, fitted ? next_steps(s) : ""));
  if (view.json) base::write_named_file(*view.json, costs::plan_json(stages, p, machines, tokens));
  for (const std::string& warning : warnings(s, world_size(s))) fmt::print("warn     {}\n", warning);
  if (!remark.empty()) fmt::print("note     {}\n", remark);
  // A plan is worth having before GPUs compute what it needs.
  if (const std::string refusal = refused_on_gpus(first, s); !refusal.empty())
    fmt::print("note     a run is refused today: {}\n", refusal);
  if (view.explain) fmt::print("\n{}", costs::render_arithmetic(first, machines, budget, tokens));
  return 0;
}

}  // namespace trireme::cli
