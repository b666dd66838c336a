// What the doctor found, all of it, as lines for people and as JSON.
#pragma once

#include <string>
#include <vector>

#include "trireme/doctor/judge.h"

namespace trireme::doctor {

struct Examination {
  std::vector<Facts> facts;  ///< by rank
  std::vector<PairResult> pairs;
  double copy_rate = 0;  ///< bytes read and written a second by a rank while all copy
  std::vector<CollectiveResult> collectives;
  std::vector<Finding> findings;
};

/// The findings, worst last, where the eye is when it is printed; before them the matrix of pairs, where it fits.
std::string report_text(const Examination& examination);

std::string report_json(const Examination& examination);

/// Rows send to columns; latencies are of both ways. Empty for one rank, or where not every pair was measured.
std::string matrix_text(const Examination& examination);

}  // namespace trireme::doctor
