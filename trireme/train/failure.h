// Why this rank ends, for the launcher that has started it. Its report names the rank that failed by itself, and marks
// the others as consequences, whichever of them ends first.
//
//     int main(int argc, char** argv) try {
//       ...
//     } catch (const std::exception& error) {
//       trireme::train::report_failure(error);  // does nothing without trireme launch
//       std::fprintf(stderr, "%s\n", error.what());
//       return 1;
//     }
#pragma once

#include <exception>

#include "trireme/launch/supervise/worker.h"

namespace trireme::train {

/// Who caused an error: of a CommError as launch::fault_of says, of a RankError the rank that failed, else this rank.
launch::Fault fault_of(const std::exception& error);

/// Tells the launcher. Call it in the catch block of main(), before the rank ends.
void report_failure(const std::exception& error) noexcept;

}  // namespace trireme::train
