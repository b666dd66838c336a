// Where the time from exec to the first step goes: phases that follow each other without a gap, so they add up to it.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace trireme::train {

class StartPhases {
 public:
  /// Begins with what is past already: "exec", from the launcher's exec (or the attempt's begin) to this process',
  /// where our launcher says when that was; "load", until the program's libraries were loaded.
  StartPhases();

  /// The time since the last end (of a phase, or of the loading) was `name`.
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
