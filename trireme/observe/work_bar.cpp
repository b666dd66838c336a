#include "trireme/observe/work_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/text.h"

namespace trireme::observe {

std::string work_bar_text(const std::string& what, double done, double seconds_so_far) {
  constexpr int kCells = 20;
  done = std::clamp(done, 0.0, 1.0);
  const int full = static_cast<int>(std::lround(done * kCells));
  std::string text = fmt::format("{}  [{:#<{}}{:.<{}}] {:3.0f} %", what, "", full, "", kCells - full, 100 * done);
  if (done > 0 && done < 1) text += fmt::format("  eta {}", base::human_duration(seconds_so_far * (1 - done) / done));
  return text;
}

WorkBar::WorkBar(std::string what, std::FILE* out)
    : what_(std::move(what)),
      out_(out),
      terminal_(isatty(fileno(out)) != 0),
      start_(Clock::now()),
      next_(start_ + std::chrono::seconds(terminal_ ? 2 : 10)) {}

void WorkBar::show(double done) {
  const Clock::time_point now = Clock::now();
  if (now < next_) return;
  next_ = now + (terminal_ ? std::chrono::milliseconds(200) : std::chrono::milliseconds(10'000));
  const std::string text = work_bar_text(what_, done, std::chrono::duration<double>(now - start_).count());
  fmt::print(out_, "{}{}{}", terminal_ ? "\r\x1b[K" : "", text, terminal_ ? "" : "\n");
  std::fflush(out_);
  drawn_ = true;
}

WorkBar::~WorkBar() {
  if (!drawn_ || !terminal_) return;
  fmt::print(out_, "\r\x1b[K");
  std::fflush(out_);
}

}  // namespace trireme::observe
