// Everything that the doctor found, as readable lines and as JSON.
#pragma once

#include <string>
#include <vector>

#include "trireme/doctor/judge.h"

namespace trireme::doctor {

struct Examination {
  std::vector<Facts> facts;  ///< by rank
  std::vector<PairResult> pairs;
  double copy_rate = 0;  ///< bytes that a rank reads and writes per second while all ranks copy
  std::vector<CollectiveResult> collectives;
  std::vector<Finding> findings;
};

/// The matrix of pairs, if it was measured, and the findings. The worst come last, nearest to the prompt.
std::string report_text(const Examination& examination);

std::string report_json(const Examination& examination);

/// In each cell, the row's rank sends to the column's. A latency is one number for both directions. Empty for one rank,
/// or if a pair was not measured.
std::string matrix_text(const Examination& examination);

}  // namespace trireme::doctor
