#include "trireme/door/refusals.h"

#include <fmt/format.h>

namespace trireme::door {

void Refusals::tell(const std::string& line, Clock::time_point now) {
  constexpr int kMostLines = 8;
  if (now - window_start_ > std::chrono::minutes(1)) {
    window_start_ = now;
    told_ = 0;
  }
  if (told_ == kMostLines) {
    ++untold_;
    return;
  }
  ++told_;
  say_(untold_ == 0 ? line : fmt::format("{} ({} others were refused before)", line, untold_));
  untold_ = 0;
}

}  // namespace trireme::door
