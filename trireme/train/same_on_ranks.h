// What ranks compare through their communicator: values by name, of which each machine may have its own.
#pragma once

#include <optional>
#include <string>

#include "trireme/comm/communicator.h"

namespace trireme::train {

/// A rank with other values than rank 0.
struct Unlike {
  int rank = 0;
  std::string what;  ///< as launch::difference() says it; "" if only one of the two has some of the names
};

/// The first rank whose values are unlike rank 0's; the same on every rank. Every rank must call.
///
/// @param own  this rank's values, an object of JSON with texts
/// Cost      a gather of 8 bytes a rank; if ranks differ, a text for each different set of values
std::optional<Unlike> find_unlike(comm::Communicator& world, const std::string& own);

}  // namespace trireme::train
