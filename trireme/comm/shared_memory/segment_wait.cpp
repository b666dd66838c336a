#include "trireme/comm/shared_memory/segment_wait.h"

#include <sched.h>

namespace trireme::comm {

// Reading the clock takes a tenth of the time of a yield.
bool Spinner::offer() {
  if (looks_++ % kTimedOffers == 0) {
    const auto now = Clock::now();
    if (looks_ == 1) start_ = now;
    if (now - start_ > kLongest) return false;
  }
  sched_yield();
  return true;
}

bool Spinner::pause() { return shares_core_ ? offer() : look_or_offer(); }

bool Spinner::look_or_offer() {
  if (offers_ == 0 && looks_ < kLooks) {
    ++looks_;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
    return true;
  }
  const auto before = Clock::now();
  if (looks_ <= kLooks) start_ = before;  // the first offer of this wait
  looks_ = kLooks + 1;
  if (before - start_ > kLongest) return false;
  sched_yield();
  if (Clock::now() - before > kLate)
    offers_ = kOffers;
  else if (offers_ > 0)
    --offers_;
  return true;
}

}  // namespace trireme::comm
