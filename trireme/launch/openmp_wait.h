// How long threads of one process look for each other at OpenMP's barriers before they sleep.
//
// LibTorch brings libgomp, whose threads look some 300,000 times (milliseconds) for one that has not come. Where other
// work has that one's core, all of it is lost: with two threads and four busy loops on two cores a step took 37 times
// as long as with one thread. 2,000 looks are some ten microseconds, more than a barrier takes where every thread has
// a core. libgomp reads the variable once, in its constructor: cli/before_main.cpp and rank_setup.cpp set it in time.
#pragma once

#include <array>
#include <string_view>

namespace trireme::launch {

inline constexpr std::string_view kSpinName = "GOMP_SPINCOUNT";
inline constexpr std::string_view kSpinCount = "2000";

/// Who has set one of these has chosen how threads wait, and nothing is changed.
inline constexpr std::array<std::string_view, 4> kWaitNames = {kSpinName, "OMP_WAIT_POLICY", "KMP_BLOCKTIME",
                                                               "KMP_LIBRARY"};

}  // namespace trireme::launch
