// docs/support.md: which combinations run, by planning all of them.
#pragma once

#include <string>

#include "matrix.h"

namespace trireme::engine {

/// The sentence with which a combination is refused before the start; empty when it is not.
std::string refusal_of(const MatrixCell& cell);

/// A refusal without its numbers, so that combinations refused by one rule are one row.
std::string rule_of(const std::string& refusal);

std::string support_page(const std::vector<MatrixCell>& cells);

}  // namespace trireme::engine
