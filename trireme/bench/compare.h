// Compares two reports: what became faster, what became slower, and what is only noise.
#pragma once

#include "trireme/bench/report.h"

namespace trireme::bench {

struct Change {
  enum class Kind { same, faster, slower };
  const Row *before, *after;
  double ratio = 1;  ///< of the times, after / before: below 1 is faster
  double spread = 0;  ///< the larger spread of the two rows; smaller changes are noise
  Kind kind = Kind::same;
};

struct Comparison {
  std::vector<Change> changes;  ///< rows that both have, by name and shape, in the order of `before`
  std::vector<const Row*> only_before, only_after;
};

/// Refers to rows of both reports, which must outlive it.
/// Errors    UsageError when the reports are of different kinds, or have no row in common
Comparison compare(const Report& before, const Report& after);

/// A table that ends with the numbers of faster and slower rows.
std::string compare_text(const Report& before, const Report& after);

/// `trireme bench compare A.json B.json`. Errors: UsageError as above, and for files that cannot be read
int compare_files(const std::string& before, const std::string& after);

}  // namespace trireme::bench
