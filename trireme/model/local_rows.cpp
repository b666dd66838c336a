#include "trireme/model/local_rows.h"

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme::model {
namespace {

// Ring cuts a sequence in 2 cp chunks, so that early and late positions are on every rank; ulysses in cp parts.
int64_t context_chunks(const Parallel& parallel) {
  if (parallel.cp_size == 1) return 1;
  return parallel.context == Parallel::Context::ring ? 2 * parallel.cp_size : parallel.cp_size;
}

void check_sequence(const Parallel& parallel, int64_t sequence) {
  const int64_t chunks = context_chunks(parallel);
  if (sequence % chunks == 0) return;
  throw UsageError(fmt::format(
      "mesh.cp={} with {} attention cuts a sequence in {} parts, which do not divide its {} tokens; use a sequence of "
      "{} or {} tokens, or another mesh.cp",
      parallel.cp_size, chunks == parallel.cp_size ? "ulysses" : "ring", chunks, sequence,
      std::max(chunks, sequence / chunks * chunks), (sequence / chunks + 1) * chunks));
}

}  // namespace

LocalRows local_rows(const Parallel& parallel, const BatchShape& shape) {
  check_sequence(parallel, shape.sequence);
  LocalRows local;
  local.sequence = shape.sequence / parallel.cp_size;
  local.tokens = local.rows = shape.micro_batch * local.sequence;
  if (!parallel.sequence_parallel || parallel.tp_size == 1) return local;
  if (local.tokens % parallel.tp_size != 0)
    throw UsageError(fmt::format(
        "sequence parallelism cuts the {} tokens of a micro-batch ({} x {}) in mesh.tp={} equal parts, and they do not "
        "divide; choose a micro-batch or a sequence that does, or switch sequence parallelism off",
        local.tokens, shape.micro_batch, local.sequence, parallel.tp_size));
  local.rows = local.tokens / parallel.tp_size;
  return local;
}

std::vector<int64_t> context_positions(const Parallel& parallel, int64_t sequence) {
  check_sequence(parallel, sequence);
  const int64_t chunk = sequence / context_chunks(parallel);
  std::vector<int64_t> positions;
  const auto append = [&](int64_t number) {
    for (int64_t i = 0; i < chunk; ++i) positions.push_back(number * chunk + i);
  };
  append(parallel.cp_rank);
  if (parallel.cp_size > 1 && parallel.context == Parallel::Context::ring)
    append(2 * parallel.cp_size - 1 - parallel.cp_rank);
  return positions;
}

}  // namespace trireme::model
