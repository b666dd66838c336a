// trireme plan: what a training would need and take, on hardware that need not be here.
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <exception>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/named_file.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
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
#include "trireme/schedule/pipeline.h"
#include "trireme/settings/derived.h"
#include "trireme/settings/validate.h"
#include "trireme/train/foresight.h"
#include "trireme/train/grpo.h"
#include "trireme/train/resume_settings.h"
#include "trireme/train/rollout.h"
#include "trireme/train/sample_reply.h"
#include "trireme/train/setup.h"

namespace trireme::cli {
namespace {

struct PlanView {
  std::string cluster = "8xH100";
  std::optional<double> price;
  std::optional<std::string> tokens, fit, json;
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
                {.absent = "null", .example = "15e12 or 15T"}},
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
                {.absent = "none", .example = "plan.json", .writes_file = true, .result_begins = "{"}},
               {"explain", &view.explain, "print the arithmetic that a person would do"},
               {"table", &view.table, "print which layout models of several sizes need on several clusters, and end"}},
      .others = {{{"hardware", "gpu_type", "machines", "device_type"},
                  "machines, devices and hardware are --cluster, as in --cluster 8x8xH100"}}};
}

// "15e12", "15T": how papers write it.
double tokens_of(const std::string& text) {
  constexpr std::pair<char, double> kUnits[] = {{'K', 1e3}, {'M', 1e6}, {'B', 1e9}, {'T', 1e12}};
  std::string digits = text;
  double unit = 1;
  for (const auto& [letter, size] : kUnits)
    if (!digits.empty() && std::toupper(static_cast<unsigned char>(digits.back())) == letter) {
      unit = size;
      digits.pop_back();
      break;
    }
  while (digits.ends_with(' ')) digits.pop_back();
  const double tokens = unit * base::parse_number(digits).value_or(0);
  if (tokens < 1 || !std::isfinite(tokens))
    throw UsageError(fmt::format("error: tokens wants a count from 1 on, such as 15e12 or 15T, not '{}'", text));
  return tokens;
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

using Holds = std::function<bool(int64_t)>;

// Of the numbers up to `most` that are allowed, of which the first fits most easily, the last that fits; 0: none. By
// doubling and halving steps.
int64_t last_that_fits(int64_t most, const Holds& allowed, const Holds& fit) {
  int64_t last = 0, good = 0, bad = most + 1;  // what is allowed up to `good` fits, and nothing from `bad` on
  const auto look = [&](int64_t n) {
    int64_t m = n;
    while (m > good && !allowed(m)) --m;
    if (m > good && !fit(m)) {
      bad = m;
      return;
    }
    if (m > good) last = m;
    good = n;
  };
  for (int64_t n = 1; n < bad; n = std::min(2 * n, bad)) look(n);
  while (bad - good > 1) look(good + (bad - good) / 2);
  return last;
}

// A global batch that the user gave stays: only micro-batches that divide it come into question.
std::vector<int64_t> micro_batches_of(const Settings& s) {
  const int64_t batch = s.train.global_batch_size;
  const int64_t most = std::max<int64_t>(1, batch / mesh_shape(s, world_size(s)).data_parallel_ranks());
  std::vector<int64_t> sizes;
  for (int64_t n = 1; n <= std::min(most, kMostAtOnce); ++n)
    if (batch % n == 0) sizes.push_back(n);
  return sizes;
}

// The lengths that --fit looks at: whole blocks of tokens, and all that the model has positions for.
std::vector<int64_t> lengths_of(const Settings& s) {
  constexpr int64_t kBlock = 256;
  const int64_t longest = model::config_of(s.model).longest_sequence();
  std::vector<int64_t> lengths;
  for (int64_t length = kBlock; length < longest; length += kBlock) lengths.push_back(length);
  lengths.push_back(longest);
  return lengths;
}

// The values that --fit tries, in order, and how one is set.
struct Fitted {
  const char* name;
  std::vector<int64_t> values;
  std::function<void(int64_t)> set;
  std::string end = {};  ///< why no larger value is looked at, where the last one fits
};

Fitted fitted(Settings& s, const std::string& what, std::optional<int64_t> batch_to_round) {
  const bool is_rewarded = s.task == train::Learning::rewards;  // whose rows follow from the length and grpo.*
  if (what == "sequence") {
    std::vector<int64_t> lengths = lengths_of(s);
    if (is_rewarded) std::erase_if(lengths, [&](int64_t length) { return length < train::most_places(s.grpo); });
    return {.name = "train.max_seq_length",
            .values = std::move(lengths),
            .set = [&s, is_rewarded, micro = s.train.micro_batch_size](int64_t length) {
              s.train.max_seq_length = length;
              s.train.micro_batch_size = micro;
              if (is_rewarded) train::set_rows(s);
            }};
  }
  std::vector<int64_t> sizes(kMostAtOnce);
  std::iota(sizes.begin(), sizes.end(), int64_t{1});
  if (!batch_to_round && !is_rewarded) sizes = micro_batches_of(s);
  if (is_rewarded) {
    Settings alone = s;
    alone.train.micro_batch_size = 1;
    train::set_rows(alone);
    const int64_t rows = alone.train.global_batch_size, ranks = mesh_shape(s, world_size(s)).data_parallel_ranks();
    sizes.resize(static_cast<size_t>(std::min(kMostAtOnce, std::max<int64_t>(1, rows / ranks))));
  }
  const MeshShape mesh = mesh_shape(s, world_size(s));
  const bool one_rank = mesh.data_parallel_ranks() == 1, staged = mesh.pp > 1 && !is_rewarded;
  if (staged) {  // each stage has a micro-batch at a time
    const int64_t busy = batch_to_round.value_or(s.train.global_batch_size) / (mesh.data_parallel_ranks() * mesh.pp);
    std::erase_if(sizes, [most = std::max<int64_t>(1, busy)](int64_t size) { return size > most; });
  }
  const std::string end = staged ? "; more would leave stages of the pipeline idle"
                          : batch_to_round || sizes.back() == kMostAtOnce ? ", the largest that is looked at"
                          : one_rank                                      ? ": a step has no more"
                                                                          : "; more would leave ranks idle";
  return {.name = "train.micro_batch_size",
          .values = std::move(sizes),
          .set =
              [&s, batch_to_round, is_rewarded](int64_t size) {
                s.train.micro_batch_size = size;
                if (is_rewarded) train::set_rows(s);
                if (batch_to_round) round_batch(s, *batch_to_round);
              },
          .end = end};
}

// Whether a value fits. It is set then; else the least is.
bool fit_setting(Settings& s, const std::string& what, costs::Machines machines,
                 std::optional<int64_t> batch_to_round) {
  if (costs::room(machines.hardware) <= 0)
    throw UsageError(
        fmt::format("error: --fit needs the memory of {}, and its file does not say it", machines.hardware.name));
  const Fitted fitting = fitted(s, what, batch_to_round);
  const int64_t most = std::ssize(fitting.values);
  const auto value = [&](int64_t n) { return fitting.values[static_cast<size_t>(n - 1)]; };
  const bool counts_replies = machines.first_rank_bytes > 0;
  const auto set = [&](int64_t n) {
    fitting.set(value(n));
    if (counts_replies) machines.first_rank_bytes = train::most_sample_bytes(s, model::config_of(s.model));
  };
  std::exception_ptr refusal;  // of the last look
  const auto is_taken = [&](const auto& look) {
    refusal = nullptr;
    try {
      return look();
    } catch (const UsageError&) {
      refusal = std::current_exception();
      return false;
    }
  };
  // Rules between settings refuse some values and not those behind them: pieces of mesh.cp, rows of mesh.tp.
  const auto allowed = [&](int64_t n) { return is_taken([&] { return set(n), validate(s, world_size(s)), true; }); };
  // Of the stages of a pipeline on devices, one decides; all are looked at again in the end.
  const bool staged =
      stages_that_count(s, machines) == plan::PlacedStages::fullest && mesh_shape(s, world_size(s)).pp > 1;
  int64_t least = 1;
  while (least <= most && !allowed(least)) ++least;
  if (least > most) std::rethrow_exception(refusal);
  if (!staged || what != "sequence" || !allowed(most)) set(least);  // in long sequences, activations decide
  const int rank = staged ? fullest_rank(s) : 0;
  bench::Progress progress("plan");
  int64_t tried = 0;
  std::exception_ptr too_much;  // what offload.fit says of the least value
  int64_t found = last_that_fits(most, allowed, [&](int64_t n) {
    set(n);
    ++tried;
    progress.step(tried, std::max(tried, kUsualTries),
                  fmt::format("micro-batches of {} x {} tokens", s.train.micro_batch_size,
                              train::sequence_length(s, model::config_of(s.model))));
    const bool fit = is_taken([&] {
      if (!staged) return fits(s, machines);
      const Explained e = plan_of(s, rank);
      return costs::needed({&e.plan}, machines) <= costs::room(machines.hardware);
    });
    too_much = refusal;
    return fit;
  });
  set(std::max(least, found));
  while (staged && found > 0 && !fits(s, machines)) {
    do --found;
    while (found > 0 && !allowed(found));
    set(std::max(least, found));
  }
  if (found > 0) {
    fmt::print("fit      the largest {} that fits is {}{}\n", fitting.name, base::human_count(value(found)),
               found == most ? fitting.end : "");
    return true;
  }
  if (too_much) std::rethrow_exception(too_much);
  fmt::print("fit      no {} fits, not even {}; try {}\n", fitting.name, base::human_count(value(least)),
             next_steps(s, machines, what != "sequence"));
  return false;
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

constexpr const char* kPlanUsage =
    "trireme plan: what a training would need and take, on hardware that need not be here\n"
    "  trireme plan llama-3-8b --cluster 8xH100 --recompute full --tokens 15e12 --explain\n"
    "  trireme plan llama-3-70b --cluster 8x8xH100 --mesh.tp 8 --fit micro_batch\n"
    "  trireme plan llama-2-7b --cluster 2xRTX-4090 --lora.r 8 --lora.dropout 0 --train.micro_batch_size 1\n"
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

std::string refused_on_gpus(const plan::StepPlan& plan, const Settings& s, const costs::Hardware& hardware) {
  if (s.accelerator != engine::Accelerator::cuda) return "";
  const model::Precision& precision = plan.request.precision;
  const std::string lacking = costs::lacking_format(hardware, precision.compute, precision.float8);
  return lacking.empty() ? refused_on_gpus(plan, s) : lacking;
}

std::string refused_on_gpus(const plan::StepPlan& plan, const Settings& s) try {
  if (s.accelerator == engine::Accelerator::cuda) engine::check_gpu(*plan.model, plan.request, s.engine.poison);
  return "";
} catch (const UsageError& error) {
  return error.what();
}

void round_batch(Settings& s, int64_t asked) {
  const MeshShape mesh = mesh_shape(s, world_size(s));
  const schedule::PipelineSchedule* schedule = schedule::find_pipeline_schedule(s.pipeline.schedule);
  const int64_t round = mesh.pp > 1 && schedule != nullptr && schedule->in_rounds ? mesh.pp : 1;
  const int64_t each = s.train.micro_batch_size * mesh.data_parallel_ranks() * round;
  s.train.global_batch_size = std::max<int64_t>(1, asked / each) * each;
}

namespace {

// Refuses a micro-batch whose bytes no 64 bits count: 512 for each number between two layers are more than any model
// has.
void check_countable(const Settings& s) {
  constexpr double kBytes = 512, kCounted = 4e18;
  const model::ModelConfig c = model::config_of(s.model);
  const double tokens = double(s.train.micro_batch_size) * double(train::sequence_length(s, c));
  const double widths = double(c.hidden_size) * double(c.num_hidden_layers) + double(c.vocab_size);
  if (kBytes * tokens * widths > kCounted)
    throw UsageError(
        fmt::format("error: a micro-batch of {} is beyond any memory; lower train.micro_batch_size or "
                    "train.max_seq_length",
                    base::plural(int64_t(tokens), "token")));
}

// The settings are those of a cluster's ranks.
void print_plan(const PlanView& view, ParsedSettings& parsed, const costs::Cluster& cluster,
                const std::vector<std::string>& notes) {
  complete_plan(parsed);  // by the number of ranks
  Settings& s = parsed.settings;
  if (model::config_of(s.model).num_parameters() == 0) throw UsageError("error: the model has no parameters");
  check_countable(s);
  costs::Machines machines{
      .hardware = cluster.hardware, .ranks = s.devices.value_or(1), .threads = train::threads_of_a_rank(s)};
  const auto count_replies = [&] {
    if (cluster.hardware.shares_cores)
      machines.first_rank_bytes = train::most_sample_bytes(s, model::config_of(s.model));
  };
  std::optional<int64_t> batch_to_round;
  if (!is_settled(parsed, "train.global_batch_size") && s.task != train::Learning::rewards)
    batch_to_round = s.train.global_batch_size;
  if (batch_to_round) round_batch(s, *batch_to_round);
  count_replies();
  const bool fitted = !view.fit || fit_setting(s, *view.fit, machines, batch_to_round);
  count_replies();  // for the length that was found
  std::optional<observe::Waiting> waiting(std::in_place, "planning");
  const ExplainedStages explained = plans_of_stages(s, stages_that_count(s, machines));
  const costs::StagePlans stages = stages_of(explained.plans);
  const plan::StepPlan& first = *stages.front();
  const std::optional<costs::Prediction> p = costs::predict_if_recorded(first, machines);
  const std::string advice =
      fitted && !costs::fits(stages, machines) ? next_steps(s, machines, /*may_shorten=*/true) : "";
  waiting.reset();
  const int64_t tokens = s.train.global_batch_size * first.request.shape.sequence;
  const std::string& date = cluster.hardware.price_date;
  const costs::Budget budget{
      .tokens = view.tokens ? std::optional(tokens_of(*view.tokens)) : std::nullopt,
      .price = view.price.value_or(cluster.hardware.price),
      .currency = cluster.hardware.currency,
      .price_is = view.price ? "" : fmt::format(" (an example{})", date.empty() ? "" : " of " + date)};
  const MeshShape mesh = mesh_shape(s, world_size(s));
  fmt::print(
      "model    {}, {} parameters\nranks    {} on {} of {}: {}, pp {} x replicate {} x shard {} x cp {} x tp {}, "
      "{}\n",
      s.model.name, base::human_quantity(double(first.model->config.num_parameters())), world_size(s),
      base::plural(s.num_nodes, "machine"), cluster.hardware.name, config::name_of(s.strategy), mesh.pp, mesh.replicate,
      mesh.shard, mesh.cp, mesh.tp, config::name_of(number_format(s)));
  fmt::print("a step   {} of {}, {} at a time on each rank\n", base::plural(s.train.global_batch_size, "sequence"),
             base::plural(first.request.shape.sequence, "token"), s.train.micro_batch_size);
  fmt::print("{}", costs::render_plan(stages, p, machines, budget, tokens, advice));
  // A plan is worth having before GPUs compute what it needs.
  const costs::Remarks remarks{.warnings = warnings(s, world_size(s)),
                               .refused = refused_on_gpus(first, s, machines.hardware)};
  if (view.json) base::write_named_file(*view.json, costs::plan_json(stages, p, machines, tokens, remarks));
  for (const std::string& warning : remarks.warnings) fmt::print("warn     {}\n", warning);
  for (const std::string& note : notes) fmt::print("note     {}\n", note);
  if (batch_to_round && s.train.global_batch_size != *batch_to_round)
    fmt::print(
        "note     train.global_batch_size is {} here, in whole micro-batches of {} on {}; a run has {}, unless you "
        "give "
        "it --train.global_batch_size {}, too\n",
        s.train.global_batch_size, s.train.micro_batch_size,
        base::plural(mesh.data_parallel_ranks(), "data-parallel rank"), *batch_to_round, s.train.global_batch_size);
  if (s.task == train::Learning::rewards) fmt::print("note     {}\n", train::kWithoutAnswers);
  if (!remarks.refused.empty()) fmt::print("note     a run is refused today: {}\n", remarks.refused);
  if (view.explain) fmt::print("\n{}", costs::render_arithmetic(first, machines, budget, tokens));
}

}  // namespace

int run_plan(Arguments arguments) {
  PlanView view;
  const auto help = [] {
    PlanView defaults;
    return kPlanUsage + known_hardware() + "\n" + config::help_text(config::Table({section(defaults)}));
  };
  if (const auto code = answer_help(arguments, help())) return *code;
  ParsedSettings parsed = read_settings(arguments, {.command = "plan", .own = {section(view)}});
  if (parsed.help) {
    fmt::print("{}", help());
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
  if (view.tokens) tokens_of(*view.tokens);  // refused before anything is planned
  train::place_run(parsed);
  // A run that is not here is no reason not to plan.
  if (const train::Resume& resume = parsed.settings.resume;
      resume.from != train::Resume::From::folder && !checkpoint::find_latest(parsed.settings.out_dir))
    parsed.settings.resume = {};
  train::take_over_run(parsed);
  const costs::Cluster cluster = costs::parse_cluster(view.cluster);
  const bool is_typed = parsed.typed("cluster");
  const NamedHardware named{.what = "the cluster " + view.cluster,
                            .option = (is_typed ? "--cluster " : "the default --cluster ") + view.cluster,
                            .processors = "--cluster 2xthis",
                            .typed = is_typed};
  const std::vector<std::string> notes = settle(parsed, cluster, named);
  try {
    print_plan(view, parsed, cluster, notes);
  } catch (const ProcessorsOnly& refusal) {
    blame_hardware(refusal, named);
  }
  return 0;
}

}  // namespace trireme::cli
