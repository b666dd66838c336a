#include "trireme/observe/work_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/text.h"

namespace trireme::observe {
namespace {
using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kBlink = 200ms;
}  // namespace

LateLine::LateLine(std::FILE* out)
    : out_(out), terminal_(isatty(fileno(out)) != 0), start_(Clock::now()), next_(start_ + (terminal_ ? 2s : 10s)) {}

void LateLine::show(const std::string& text) {
  next_ = Clock::now() + (terminal_ ? kBlink : 10s);
  const std::string line = fmt::format("{}{}{}", terminal_ ? "\r\x1b[K" : "", text, terminal_ ? "" : "\n");
  std::fputs(line.c_str(), out_);  // fmt::print would throw where the reader has gone
  std::fflush(out_);
  drawn_ = true;
}

LateLine::~LateLine() {
  if (!drawn_ || !terminal_) return;
  std::fputs("\r\x1b[K", out_);
  std::fflush(out_);
}

std::string work_bar_text(const std::string& what, double done, double seconds_so_far) {
  constexpr int kCells = 20;
  done = std::clamp(done, 0.0, 1.0);
  const int full = static_cast<int>(std::lround(done * kCells));
  std::string text = fmt::format("{}  [{:#<{}}{:.<{}}] {:3.0f} %", what, "", full, "", kCells - full, 100 * done);
  if (done > 0 && done < 1) text += fmt::format("  eta {}", base::human_duration(seconds_so_far * (1 - done) / done));
  return text;
}

void WorkBar::show(double done) {
  if (line_.is_due()) line_.show(work_bar_text(what_, done, line_.seconds_so_far()));
}

Waiting::Waiting(std::string what, std::FILE* out)
    : what_(std::move(what)), out_(out), crew_(1, [this](std::size_t) { tell(); }) {}

Waiting::~Waiting() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  end_.notify_all();
}

void Waiting::tell() {
  LateLine line(out_);
  std::unique_lock lock(mutex_);
  while (!end_.wait_for(lock, kBlink, [this] { return ended_; }))
    if (line.is_due()) line.show(fmt::format("{}  {}", what_, base::human_duration(line.seconds_so_far())));
}

}  // namespace trireme::observe
