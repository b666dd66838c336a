// What disturbs a run from outside while it goes on: another program on its cores, swapping, a disk or clocks that have
// become slower. Pure rules over figures of all ranks; train/disturbance_watch.cpp collects them.
//
// What a machine does not tell is 0 in its figures, and then nothing is said about it.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace trireme::observe {

/// One rank's figures of some steps, seconds unless it says otherwise. All are doubles, so that ranks can send them as
/// one tensor.
struct HostWindow {
  double rank = 0, node = 0;
  double seconds = 0;  ///< wall time of the window; 0: this rank has no figures of it
  double step = 0;  ///< of one step, mean
  double data = 0;  ///< in steps, waited for data
  double save = 0;  ///< of one save, mean; 0: none
  double cpus = 0;  ///< equal for ranks of a machine that may use the same CPUs
  double busy = 0, own = 0;  ///< what these CPUs worked: for all programs, for this rank
  double waited = 0;  ///< one of its threads was ready to run, and had no core: the longest
  double throttled = 0, disk = 0, stolen = 0;  ///< as HostUsage
  double major_faults = 0, swapped_bytes = 0;  ///< counts
  double megahertz = 0;  ///< of the core, or of the card, at the end of the window
};

class Disturbances {
 public:
  /// One window of all ranks. Returns a line for each cause that two windows in a row show; each cause is told of once
  /// for each machine.
  /// Source    the rules are listed in docs/profiling.md
  std::vector<std::string> see(std::span<const HostWindow> ranks);

  /// The numbers of a rank's earlier windows, by which a change is seen.
  class Past {
   public:
    void add(double number);
    /// Their lower median; 0 as long as there are fewer than three.
    double usual() const;

   private:
    std::vector<double> numbers_;
  };
  struct PastOfRank {
    Past step, data_share, save, megahertz;
    double swapped_bytes = 0;  ///< of the last window
  };

 private:
  std::map<double, PastOfRank> past_;  ///< by rank
  std::map<std::pair<std::string, double>, int> in_a_row_;  ///< windows that have shown a cause, by cause and rank
  std::set<std::pair<std::string, double>> named_;  ///< cause and machine
};

/// " (machine 2)" if there are several, else "".
std::string machine_text(double node, bool several);

}  // namespace trireme::observe
