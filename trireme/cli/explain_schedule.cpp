#include "trireme/cli/explain_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/cli/explained.h"
#include "trireme/config/mesh_shape.h"
#include "trireme/config/validate.h"
#include "trireme/observe/loss_curve.h"
#include "trireme/plan/step_plan.h"
#include "trireme/schedule/render.h"
#include "trireme/schedule/render_timeline.h"
#include "trireme/train/setup.h"

namespace trireme::cli {
namespace {

constexpr int kMostRows = 64;
const std::vector<std::string> kFormats = {"text", "list", "svg", "trace"};
const std::vector<std::string> kFlags = {"--format", "--output", "--rank", "--rate", "--bandwidth", "--width"};

ScheduleView::Format format_of(const std::string& text) {
  using Format = ScheduleView::Format;
  static constexpr Format kValues[] = {Format::text, Format::list, Format::svg, Format::trace};
  const auto it = std::find(kFormats.begin(), kFormats.end(), text);
  if (it != kFormats.end()) return kValues[it - kFormats.begin()];
  const auto near = base::nearest(text, kFormats);
  throw UsageError(fmt::format("error: --format {} is not one of {}{}", text, base::join(kFormats, ", "),
                               near ? fmt::format("; did you mean {}?", *near) : ""));
}

int whole(const std::string& flag, const std::string& text, int least) {
  const auto n = base::parse_count(text);
  if (!n || *n < least || *n > 1'000'000)
    throw UsageError(fmt::format("error: {} {} is not a whole number of at least {}", flag, text, least));
  return static_cast<int>(*n);
}

double positive(const std::string& flag, const std::string& text, const char* unit) {
  const auto x = base::parse_number(text);
  if (!x || *x <= 0) throw UsageError(fmt::format("error: {} {} is not a number of {} above 0", flag, text, unit));
  return *x;
}

void set_flag(ScheduleView& view, const std::string& flag, const std::string& value) {
  if (flag == "--format")
    view.format = format_of(value);
  else if (flag == "--output")
    view.output = value;
  else if (flag == "--rank")
    view.rank = whole(flag, value, 0);
  else if (flag == "--rate")
    view.gflops_per_second = positive(flag, value, "GFLOP/s");
  else if (flag == "--bandwidth")
    view.gigabytes_per_second = positive(flag, value, "GB/s");
  else
    view.width = whole(flag, value, 60);
}

std::string list_text(const plan::StepPlan& plan) {
  return fmt::format("rank {} of {}\n{}", plan.request.rank, plan.request.mesh.world_size(),
                     schedule::render_text(plan.train()));
}

// All ranks, or of a large mesh one pipeline of them: the others do the same at the same time.
std::vector<int> shown_ranks(const plan::StepPlan& plan) {
  const int ranks = plan.request.mesh.world_size();
  std::vector<int> shown(ranks);
  std::iota(shown.begin(), shown.end(), 0);
  return ranks <= kMostRows ? shown : plan.groups.stages;
}

std::string title_of(const config::Settings& settings, const plan::StepPlan& plan) {
  const plan::StepRequest& r = plan.request;
  const std::string name = plan.stages.ranks > 1 ? r.pipeline.schedule + ", " : "";
  return fmt::format("{}: {}{} x {}", settings.model.name, name, base::plural(r.mesh.world_size(), "rank"),
                     r.num_micro_batches == 1 ? "1 micro-batch" : fmt::format("{} micro-batches", r.num_micro_batches));
}

// What the picture adds up to, a line a fact.
std::string summary(const plan::StepPlan& plan, const schedule::Timeline& timeline, const ScheduleView& view) {
  const schedule::IdleReport idle = schedule::idle_report(timeline);
  const auto ms = [](double seconds) { return fmt::format("{:.4g} ms", 1e3 * seconds); };
  std::string out = fmt::format("step       {}, predicted for {:g} GFLOP/s a rank and {:g} GB/s a message\n",
                                ms(idle.length), view.gflops_per_second, view.gigabytes_per_second);
  const auto least = [](const auto& a, const auto& b) { return a.fraction_of_step < b.fraction_of_step; };
  const auto [low, high] = std::minmax_element(idle.ranks.begin(), idle.ranks.end(), least);
  out += fmt::format("idle       {:.1f} % of {} x {}", 100 * idle.fraction,
                     base::plural(int64_t(idle.ranks.size()), "rank"), ms(idle.length));
  if (idle.ranks.size() > 1)
    out += fmt::format(": rank {} {:.1f} %, rank {} {:.1f} %", low->rank, 100 * low->fraction_of_step, high->rank,
                       100 * high->fraction_of_step);
  double inside = 0;
  for (const auto& r : idle.ranks) inside = std::max(inside, r.fraction);
  out += fmt::format("; inside a rank's own span at most {:.1f} %\n", 100 * inside);
  if (const auto b = schedule::norm_barrier(timeline))
    out += fmt::format("norm clip  {}: rank {} waits from {} until rank {} is there at {}\n", ms(b->end - b->first),
                       b->first_rank, ms(b->first), b->last_rank, ms(b->last));
  const plan::StepRequest& r = plan.request;
  if (plan.stages.ranks > 1)
    if (const auto f =
            schedule::idle_formula(r.pipeline.schedule, plan.stages.ranks, plan.stages.chunks, r.num_micro_batches))
      out += fmt::format("formula    {:.1f} % idle: {}, p={}, m={}, equal stages, free messages\n", 100 * *f,
                         r.pipeline.schedule, plan.stages.ranks, r.num_micro_batches);
  if (static_cast<int>(timeline.rows.size()) < r.mesh.world_size())
    out += fmt::format("rows       one pipeline of {}: more than {} ranks are not drawn\n",
                       base::plural(r.mesh.world_size(), "rank"), kMostRows);
  return out;
}

}  // namespace

namespace {

void take_flags(ScheduleView& view, std::vector<std::string>& arguments, const std::vector<std::string>& flags) {
  std::vector<std::string> kept;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const size_t equals = argument.find('=');
    const std::string flag = argument.substr(0, equals);
    if (std::find(flags.begin(), flags.end(), flag) == flags.end()) {
      kept.push_back(argument);
    } else if (equals != std::string::npos) {
      set_flag(view, flag, argument.substr(equals + 1));
    } else {
      if (i + 1 == arguments.size()) throw UsageError(fmt::format("error: {} needs a value", flag));
      set_flag(view, flag, arguments[++i]);
    }
  }
  arguments = std::move(kept);
}

}  // namespace

ScheduleView take_schedule_flags(std::vector<std::string>& arguments) {
  ScheduleView view;
  view.unicode = observe::terminal_shows_utf8();
  take_flags(view, arguments, kFlags);
  return view;
}

int take_rank_flag(std::vector<std::string>& arguments) {
  ScheduleView view;
  take_flags(view, arguments, {"--rank"});
  return view.rank;
}

std::string schedule_text(const config::Settings& settings, const ScheduleView& view) {
  using Format = ScheduleView::Format;
  const Explained explained = plan_of(settings, view.rank);
  const plan::StepPlan& plan = explained.plan;
  if (view.format == Format::list) return list_text(plan);
  const std::vector<schedule::Schedule> lists = plan::stage_lists(*explained.model, plan, true);
  const std::vector<schedule::RankProgram> programs = plan::rank_programs(plan, lists);
  const schedule::Costs costs{.compute_scale = 1e-9 / view.gflops_per_second,
                              .latency = 0,
                              .seconds_per_byte = 1e-9 / view.gigabytes_per_second};
  const schedule::Simulation simulation = schedule::simulate(programs, costs);
  schedule::Timeline timeline = schedule::timeline_of(programs, simulation, costs, shown_ranks(plan));
  timeline.title = title_of(settings, plan);
  if (view.format == Format::svg) return schedule::render_timeline_svg(timeline);
  if (view.format == Format::trace) return schedule::render_timeline_trace(timeline);
  return schedule::render_timeline_text(timeline, {.width = view.width, .unicode = view.unicode}) + "\n" +
         summary(plan, timeline, view);
}

void explain_schedule(const config::Settings& settings, const ScheduleView& view) {
  const std::string text = schedule_text(settings, view);
  if (view.output.empty()) {
    fmt::print("{}", text);
    return;
  }
  base::write_file_atomic(view.output, text);
  fmt::print("wrote {} ({})\n", view.output, base::human_bytes(static_cast<int64_t>(text.size())));
}

}  // namespace trireme::cli
