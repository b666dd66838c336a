// What one rank sees of a micro-batch: every unit cuts it in the same way.
#pragma once

#include "trireme/model/unit.h"

namespace trireme::model {

struct LocalRows {
  int64_t sequence = 1;  ///< tokens of each sequence on this context-parallel rank
  int64_t tokens = 1;    ///< T: of the micro-batch, on this context-parallel rank
  int64_t rows = 1;      ///< of boundaries: T, under sequence parallelism T / tp
};

/// Errors    UsageError when the sequence or the tokens cannot be cut as `parallel` asks
LocalRows local_rows(const Parallel& parallel, const BatchShape& shape);

}  // namespace trireme::model
