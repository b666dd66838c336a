// How long the threads of a process spin at OpenMP's barriers before they sleep.
//
// LibTorch's libgomp lets threads spin some 300,000 times (milliseconds) while they wait for a late thread. If other
// work occupies that thread's core, all of this time is lost: with two threads and four busy loops on two cores, a step
// took 37 times as long as with one thread. 2,000 spins take some ten microseconds, longer than a barrier takes if
// every thread has a core. libgomp reads the variable once, in its constructor; cli/before_main.cpp and rank_setup.cpp
// set it before that.
#pragma once

#include <array>
#include <string_view>

namespace trireme::launch {

inline constexpr std::string_view kSpinName = "GOMP_SPINCOUNT";
inline constexpr std::string_view kSpinCount = "2000";

/// If the user has set one of these, Trireme does not change how threads wait.
inline constexpr std::array<std::string_view, 4> kWaitNames = {kSpinName, "OMP_WAIT_POLICY", "KMP_BLOCKTIME",
                                                               "KMP_LIBRARY"};

}  // namespace trireme::launch
