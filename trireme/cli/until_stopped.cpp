#include "trireme/cli/until_stopped.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <thread>

#include "trireme/base/crew.h"
#include "trireme/base/log.h"
#include "trireme/launch/supervise/stop_signal.h"

namespace trireme::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto kLook = 10ms;
constexpr auto kTogether = 300ms;  // until all ranks have got the request, so that none waits for one that has ended

bool must_end() { return launch::stop_requested() && launch::time_since_stop_request() >= kTogether; }

[[noreturn]] void end(const launch::RankEnvironment& environment, const std::function<std::string()>& last_words) {
  if (environment.global_rank == 0) try {
      base::info("{}: {}", launch::head_of_last_words(), last_words());
    } catch (const std::exception& error) {  // a file that cannot be read any more
      base::info("{} ({})", launch::head_of_last_words(), error.what());
    }
  _exit(launch::kStoppedEarly);  // the work's threads are in the middle of it
}

}  // namespace

int run_until_stopped(const launch::RankEnvironment& environment, const std::function<int()>& work,
                      const std::function<std::string()>& last_words) {
  std::atomic<bool> is_done = false;
  const base::Crew watch(1, [&](size_t) {
    for (; !is_done; std::this_thread::sleep_for(kLook))
      if (must_end()) end(environment, last_words);
  });
  struct Done {
    std::atomic<bool>& flag;
    ~Done() { flag = true; }
  } const done{is_done};
  try {
    return work();
  } catch (const std::exception&) {
    if (!launch::stop_requested()) throw;
    // A rank that was asked, too, has ended first, or removes what is left: the watch ends this one.
    for (;;) std::this_thread::sleep_for(kLook);
  }
}

}  // namespace trireme::cli
