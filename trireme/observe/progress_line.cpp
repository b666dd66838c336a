#include "trireme/observe/progress_line.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "trireme/base/text.h"

namespace trireme::observe {
namespace {
constexpr std::string_view kGap = "  ";
constexpr const char* kEraseLine = "\r\x1b[K";
constexpr const char* kRed = "\x1b[31m";
constexpr const char* kGreen = "\x1b[32m";
constexpr const char* kPlain = "\x1b[0m";

std::string step_field(const base::StepEvent& event) {
  if (event.max_steps <= 0) return fmt::format("step {:>5}", event.step);
  const std::string total = fmt::format("{}", event.max_steps);
  return fmt::format("step {:>{}}/{}", event.step, std::max<size_t>(5, total.size()), total);
}

std::string rate_field(double tokens_per_second) {
  if (tokens_per_second < 10) return fmt::format("{:.1f} tok/s", tokens_per_second);
  return base::human_count(std::llround(tokens_per_second)) + " tok/s";
}

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}
}  // namespace

std::string format_progress(const base::StepEvent& event, int width) {
  std::string line = step_field(event) + (event.loss ? fmt::format("  loss {:.3f}", *event.loss) : "  loss -");
  std::vector<std::string> fields;
  if (event.val_loss) fields.push_back(fmt::format("val {:.3f}", *event.val_loss));
  for (const base::Measured& measured : event.measures) {
    if (measured.name == "cross_entropy") fields.push_back(fmt::format("ce {:.3f}", measured.value));
    if (measured.name == "reward") fields.push_back(fmt::format("reward {:.3f}", measured.value));
    if (measured.name == "val_reward") fields.push_back(fmt::format("val reward {:.3f}", measured.value));
    if (measured.name == "rewards/margins") fields.push_back(fmt::format("margin {:.3f}", measured.value));
    if (measured.name == "val_accuracy" || measured.name == "val_rewards/accuracies")
      fields.push_back(fmt::format("val acc {:.3f}", measured.value));
    if (measured.name == "kl_bits") fields.push_back(fmt::format("kl {:.2f} bits", measured.value));
  }
  const bool is_known = !std::isnan(event.lr);  // a norm that is NaN beside a known rate is one
  if (is_known || !std::isnan(event.grad_norm)) fields.push_back(fmt::format("|g| {:.2f}", event.grad_norm));
  if (!std::isnan(event.lr)) fields.push_back(fmt::format("lr {:.1e}", event.lr));
  if (event.skipped > 0) fields.push_back(fmt::format("{} skipped", event.skipped));
  if (event.tokens_per_second > 0) fields.push_back(rate_field(event.tokens_per_second));
  if (event.peak_fraction) fields.push_back(fmt::format("{:.0f} % of peak", *event.peak_fraction * 100));
  if (event.rss_bytes > 0) fields.push_back(base::human_bytes(event.rss_bytes));
  for (const base::Measured& measured : event.measures)
    if (measured.name == "gpu_bytes" && measured.value > 0)
      fields.push_back("GPU " + base::human_bytes(std::llround(measured.value)));
  if (std::isfinite(event.eta_seconds)) fields.push_back("eta " + base::human_duration(event.eta_seconds));
  for (const auto& field : fields) {
    if (width > 0 && line.size() + kGap.size() + field.size() > static_cast<size_t>(width)) break;
    line.append(kGap).append(field);
  }
  return line;
}

ProgressLineOptions progress_options_for(std::FILE* out) {
  const char* term = std::getenv("TERM");
  const bool able = term != nullptr && std::string_view(term) != "dumb";
  const bool terminal = able && ::isatty(::fileno(out)) == 1;
  return {.out = out, .terminal = terminal, .color = terminal && !is_set("NO_COLOR")};
}

void ProgressLine::step(const base::StepEvent& event) {
  newest_ = event;
  newest_kept_ = false;
  const bool last = event.max_steps > 0 && event.step >= event.max_steps;
  const bool keep = event.val_loss || event.is_kept ||
                    (!options_.terminal && (last || event.step % std::max<int64_t>(1, options_.log_interval) == 0));
  if (keep) {
    say(format_progress(event, options_.terminal ? width() : 0));
    newest_kept_ = true;
  } else if (options_.terminal && (last || std::chrono::steady_clock::now() - drawn_at_ >= options_.refresh)) {
    draw(format_progress(event, width() - 1));
  }
}

void ProgressLine::phase(const base::PhaseEvent& event) {
  const std::string text = event.detail.empty() ? event.name : event.name + ": " + event.detail;
  if (event.kind == base::PhaseEvent::Kind::begin) {
    if (options_.terminal) draw((text + " ...").substr(0, static_cast<size_t>(std::max(0, width() - 1))));
    return;
  }
  erase();
  if (event.seconds >= options_.told_phase.count()) say(text + " (" + base::human_duration(event.seconds) + ")");
}

void ProgressLine::say(const std::string& line) {
  erase();
  std::fputs((line + "\n").c_str(), options_.out);
  std::fflush(options_.out);
}

void ProgressLine::finish() {
  if (newest_ && !newest_kept_) say(format_progress(*newest_, options_.terminal ? width() : 0));
  newest_kept_ = true;
  erase();
  std::fflush(options_.out);
}

// `line` leaves the last column free, because some terminals wrap when it is written.
void ProgressLine::draw(std::string line) {
  if (const size_t at = line.find("loss "); options_.color && at != std::string::npos) {
    const size_t end = std::min(line.find(kGap, at), line.size());
    const bool sound = newest_ && (!newest_->loss || std::isfinite(*newest_->loss));
    line.insert(end, kPlain).insert(at, sound ? kGreen : kRed);
  }
  std::fputs((kEraseLine + line).c_str(), options_.out);
  std::fflush(options_.out);
  line_open_ = true;
  drawn_at_ = std::chrono::steady_clock::now();
}

void ProgressLine::erase() {
  if (line_open_) std::fputs(kEraseLine, options_.out);
  line_open_ = false;
}

int ProgressLine::width() const {
  if (options_.width > 0) return options_.width;
  winsize size{};
  const bool known = ::ioctl(::fileno(options_.out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

}  // namespace trireme::observe
