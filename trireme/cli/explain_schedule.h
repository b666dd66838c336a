// `trireme explain schedule`: what every rank does when in one step, as the queue model predicts it from nominal rates.
// Nothing is allocated and no rank is started.
#pragma once

#include <string>
#include <vector>

#include "trireme/config/settings.h"

namespace trireme::cli {

struct ScheduleView {
  enum class Format {
    list,  ///< one rank's actions, one a line
    text,  ///< picture for the terminal
    svg,  ///< picture
    trace,  ///< Chrome trace events, for Perfetto
  };
  Format format = Format::text;
  std::string output;  ///< file; empty: standard output
  int rank = 0;  ///< list: whose
  double gflops_per_second = 100;  ///< what a rank computes; --rate
  double gigabytes_per_second = 10;  ///< what a message or collective moves; --bandwidth
  int width = 110;  ///< text: columns
  bool unicode = true;  ///< text
};

/// Takes its own flags (--format, --output, --rank, --rate, --bandwidth, --width) out of `arguments`, which keep the
/// model and the settings.
/// Errors    UsageError naming the flag, what it was given and what it takes
ScheduleView take_schedule_flags(std::vector<std::string>& arguments);

/// Takes --rank N out of `arguments`; 0 without it. Errors: UsageError
int take_rank_flag(std::vector<std::string>& arguments);

/// What explain_schedule writes.
/// Errors    UsageError: settings that cannot work, a rank that the mesh does not have
std::string schedule_text(const config::Settings& settings, const ScheduleView& view);

/// Writes it to standard output or the file.
void explain_schedule(const config::Settings& settings, const ScheduleView& view);

}  // namespace trireme::cli
