#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/named_file.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/cli/explain.h"
#include "trireme/cli/plan.h"
#include "trireme/costs/step_costs.h"
#include "trireme/observe/loss_curve.h"
#include "trireme/observe/work_bar.h"
#include "trireme/plan/step_plan.h"
#include "trireme/schedule/render_timeline.h"
#include "trireme/settings/derived.h"
#include "trireme/settings/validate.h"
#include "trireme/train/setup.h"

namespace trireme::cli {
namespace {

constexpr int kMostRows = 64;

std::string list_text(const plan::StepPlan& plan) {
  return fmt::format("rank {} of {}\n{}", plan.request.rank, plan.request.mesh.world_size(),
                     schedule::render_text(plan.train()));
}

// All ranks; of a large mesh only one pipeline, because the other pipelines do the same at the same time.
std::vector<int> shown_ranks(const plan::StepPlan& plan) {
  const int ranks = plan.request.mesh.world_size();
  std::vector<int> shown(ranks);
  std::iota(shown.begin(), shown.end(), 0);
  return ranks <= kMostRows ? shown : plan.groups.stages;
}

std::string title_of(const Settings& settings, const plan::StepPlan& plan) {
  const plan::StepRequest& r = plan.request;
  const std::string name = plan.stages.ranks > 1 ? r.pipeline.schedule + ", " : "";
  return fmt::format("{}: {}{} x {}", settings.model.name, name, base::plural(r.mesh.world_size(), "rank"),
                     r.num_micro_batches == 1 ? "1 micro-batch" : fmt::format("{} micro-batches", r.num_micro_batches));
}

// The totals of the picture, one fact a line.
std::string summary(const plan::StepPlan& plan, const schedule::Timeline& timeline, const ScheduleView& view,
                    const std::vector<std::string>& remarks) {
  const schedule::IdleReport idle = schedule::idle_report(timeline);
  const auto shown = [](double seconds) {
    return seconds < 10 ? fmt::format("{:.4g} ms", 1e3 * seconds) : base::human_duration(seconds);
  };
  const std::string basis = view.hardware ? *view.hardware
                                          : fmt::format("{:g} GFLOP/s a rank and {:g} GB/s a message",
                                                        view.gflops_per_second, view.gigabytes_per_second);
  std::string out = fmt::format("step       {}, predicted for {}\n", shown(idle.length), basis);
  const auto least = [](const auto& a, const auto& b) { return a.fraction_of_step < b.fraction_of_step; };
  const auto [low, high] = std::minmax_element(idle.ranks.begin(), idle.ranks.end(), least);
  out += fmt::format("idle       {:.1f} % of {} x {}", 100 * idle.fraction,
                     base::plural(int64_t(idle.ranks.size()), "rank"), shown(idle.length));
  if (idle.ranks.size() > 1)
    out += fmt::format(": rank {} {:.1f} %, rank {} {:.1f} %", low->rank, 100 * low->fraction_of_step, high->rank,
                       100 * high->fraction_of_step);
  double inside = 0;
  for (const auto& r : idle.ranks) inside = std::max(inside, r.fraction);
  out += fmt::format("; inside a rank's own span at most {:.1f} %\n", 100 * inside);
  if (const auto b = schedule::norm_barrier(timeline))
    out += fmt::format("norm       {}: rank {} waits from {} until rank {} is there at {}\n", shown(b->end - b->first),
                       b->first_rank, shown(b->first), b->last_rank, shown(b->last));
  const plan::StepRequest& r = plan.request;
  if (plan.stages.ranks > 1)
    if (const auto f =
            schedule::idle_formula(r.pipeline.schedule, plan.stages.ranks, plan.stages.chunks, r.num_micro_batches))
      out += fmt::format("formula    {:.1f} % idle: {}, p={}, m={}, equal stages, free messages\n", 100 * *f,
                         r.pipeline.schedule, plan.stages.ranks, r.num_micro_batches);
  if (static_cast<int>(timeline.rows.size()) < r.mesh.world_size())
    out += fmt::format("rows       one pipeline of {}: more than {} ranks are not drawn\n",
                       base::plural(r.mesh.world_size(), "rank"), kMostRows);
  for (const std::string& remark : remarks) out += fmt::format("note       {}\n", remark);
  return out;
}

// By the hardware's figures, or by the two rates.
costs::Prediction prediction(const Settings& settings, const Explained& explained, const ScheduleView& view) {
  if (view.hardware)
    return costs::predict(*explained.model, explained.plan,
                          {.hardware = costs::read_hardware(*view.hardware),
                           .ranks = settings.devices.value_or(1),
                           .threads = train::threads_of_a_rank(settings)});
  costs::Prediction p;
  p.lists = plan::stage_lists(*explained.model, explained.plan, schedule::List::train);
  p.programs = plan::rank_programs(explained.plan, p.lists);
  p.costs = schedule::costs_of(p.programs, {.compute_scale = 1e-9 / view.gflops_per_second,
                                            .latency = 0,
                                            .seconds_per_byte = 1e-9 / view.gigabytes_per_second});
  p.simulation = schedule::simulate(p.programs, p.costs);
  return p;
}

ScheduleFormat format_of_file(const std::string& name) {
  const std::string ending = std::filesystem::path(name).extension();
  return ending == ".svg" ? ScheduleFormat::svg : ending == ".json" ? ScheduleFormat::trace : ScheduleFormat::text;
}

// An option that is typed and changes nothing was meant for another picture.
void refuse_unread_options(const ParsedSettings& parsed, const ScheduleView& view) {
  const bool is_list = view.format == ScheduleFormat::list;
  const auto refuse = [&](const char* key, bool is_read, const std::string& why) {
    if (parsed.typed(key) && !is_read)
      throw UsageError(fmt::format("error: --{} changes nothing here: {}; leave it out", key, why));
  };
  for (const char* rate : {"rate", "bandwidth"}) {
    refuse(rate, !is_list, "a list has no times");
    refuse(rate, !view.hardware, "--hardware says how fast everything is");
  }
  refuse("width", view.format == ScheduleFormat::text, "only --format text has columns");
  refuse("rank", is_list, "the picture shows all ranks, and only --format list shows one");
}

std::string schedule_text(const Settings& settings, const ScheduleView& view, std::vector<std::string> remarks,
                          bool asks_for_gpus) {
  const observe::Waiting waiting("planning");
  const Explained explained = plan_of(settings, static_cast<int>(view.rank));
  const plan::StepPlan& plan = explained.plan;
  if (const std::string refusal = refused_on_gpus(plan, settings); !refusal.empty()) {
    if (asks_for_gpus) throw UsageError(refusal);
    remarks.push_back("a run is refused today: " + refusal);
  } else if (view.hardware) {
    const std::string why = refused_on_gpus(plan, settings, costs::read_hardware(*view.hardware));
    if (!why.empty()) remarks.push_back("a run is refused today: " + why);
  }
  if (view.format == ScheduleFormat::list) return list_text(plan);
  const costs::Prediction p = prediction(settings, explained, view);
  schedule::Timeline timeline = schedule::timeline_of(p.programs, p.simulation, p.costs, shown_ranks(plan));
  timeline.title = title_of(settings, plan);
  if (view.format == ScheduleFormat::svg) return schedule::render_timeline_svg(timeline);
  if (view.format == ScheduleFormat::trace) return schedule::render_timeline_trace(timeline);
  return schedule::render_timeline_text(timeline, {.width = static_cast<int>(view.width), .unicode = view.unicode}) +
         "\n" + summary(plan, timeline, view, remarks);
}

}  // namespace

std::span<const config::Choice<ScheduleFormat>> choices_of(ScheduleFormat) {
  static const std::vector<config::Choice<ScheduleFormat>> kTable = {{ScheduleFormat::text, "text", {}},
                                                                     {ScheduleFormat::list, "list", {}},
                                                                     {ScheduleFormat::svg, "svg", {}},
                                                                     {ScheduleFormat::trace, "trace", {}}};
  return kTable;
}

config::Section section(ScheduleView& view, bool rank_alone) {
  const config::Setting rank = {"rank", &view.rank, "the rank to show", {.at_least = 0, .at_most = 1e6}};
  if (rank_alone) return {.name = "", .title = "options", .rows = {rank}};
  return {
      .name = "",
      .title = "options",
      .rows = {
          {"format", &view.format, "a picture, or one rank's actions in order (list)"},
          {"output",
           &view.output,
           "file to write to",
           {.absent = "null",
            .when_absent = "the terminal",
            .example = "step.svg",
            .writes_file = true,
            .result_begins = "{<"}},
          rank,
          {"hardware",
           &view.hardware,
           "predict times by this hardware (h100, this, or a file: trireme plan --help) instead of the two rates",
           {.absent = "null", .when_absent = "by the two rates", .example = "this"}},
          {"rate", &view.gflops_per_second, "arithmetic rate of a rank", {.unit = "GFLOP/s", .above = 0}},
          {"bandwidth", &view.gigabytes_per_second, "rate of a message or collective", {.unit = "GB/s", .above = 0}},
          {"width", &view.width, "width of the text", {.unit = "columns", .at_least = 60, .at_most = 1e6}}}};
}

void require_rank(const Settings& settings, int64_t rank) {
  if (const int64_t ranks = world_size(settings); rank >= ranks)
    throw UsageError(
        fmt::format("error: there is no rank {}: the mesh has {}, counted from 0", rank, base::plural(ranks, "rank")));
}

namespace {

// A model and the request of one of its ranks.
struct Requested {
  std::unique_ptr<model::Model> model;
  plan::StepRequest request;
};

Requested requested(const Settings& settings, int rank) {
  const int64_t ranks = world_size(settings);
  validate(settings, ranks);
  require_rank(settings, rank);
  at::set_num_threads(train::threads_of_a_rank(settings));  // attention's scratch memory is planned for each thread
  const model::ModelConfig config = model::config_of(settings.model);
  const plan::StepRequest request = train::step_request(settings, config, rank, static_cast<int>(ranks));
  return {std::make_unique<model::Model>(train::build_run_model(settings, config, request)), request};
}

}  // namespace

Explained plan_of(const Settings& settings, int rank) {
  Requested r = requested(settings, rank);
  plan::StepPlan plan = plan::make_step_plan(*r.model, r.request);
  return {std::move(r.model), std::move(plan)};
}

ExplainedStages plans_of_stages(const Settings& settings, plan::PlacedStages placed) {
  Requested r = requested(settings, 0);
  std::vector<plan::StepPlan> plans = plan::make_stage_plans(*r.model, r.request, placed);
  return {std::move(r.model), std::move(plans)};
}

void explain_schedule(ParsedSettings& parsed, const ScheduleView& given) {
  ScheduleView view = given;
  if (view.output && !parsed.typed("format")) view.format = format_of_file(*view.output);
  refuse_unread_options(parsed, view);
  const bool asks_for_gpus = parsed.settings.accelerator == engine::Accelerator::cuda;
  const NamedHardware named{.what = "the hardware " + view.hardware.value_or(""),
                            .option = "--hardware " + view.hardware.value_or(""),
                            .processors = "--hardware this"};
  std::vector<std::string> remarks;
  if (view.hardware) remarks = settle(parsed, costs::read_hardware(*view.hardware), named);
  std::string text;
  try {
    text = schedule_text(parsed.settings, view, std::move(remarks), asks_for_gpus);
  } catch (const ProcessorsOnly& refusal) {
    if (!view.hardware) throw;
    blame_hardware(refusal, named);
  }
  if (!view.output) {
    fmt::print("{}", text);
    return;
  }
  base::write_named_file(*view.output, text);
  fmt::print("wrote {} ({})\n", *view.output, base::human_bytes(std::ssize(text)));
}

}  // namespace trireme::cli
