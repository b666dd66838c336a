// The phases from exec to the first step. They follow each other without a gap, so their times add up to the total.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace trireme::train {

class StartPhases {
 public:
  /// Begins with two phases that are over. "exec" lasted from the start of the launcher (or attempt) to that of this
  /// process; only our launcher tells it. "load" lasted until the program's libraries were loaded.
  StartPhases();

  /// Ends phase `name`, which began when the phase before ended.
  void end(const char* name);

  double total() const;
  /// "starting: exec 0.32 s, load 0.30, settings 0.02, ...; 1.04 s in all"
  std::string text() const;

 private:
  struct Phase {
    const char* name;
    double seconds;
  };
  std::chrono::steady_clock::time_point last_;
  std::vector<Phase> phases_;
};

}  // namespace trireme::train
