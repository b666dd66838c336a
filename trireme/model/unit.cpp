#include "trireme/model/unit.h"

#include <c10/core/ScalarType.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "trireme/base/error.h"
#include "trireme/base/text.h"

namespace trireme::model {

TensorSpec documents_of(const BatchShape& shape) { return {"documents", {2, shape.tokens()}, at::kLong}; }

int64_t TensorSpec::bytes() const {
  if (shape.empty()) return 0;
  return static_cast<int64_t>(c10::elementSize(dtype)) * c10::multiply_integers(shape);
}

void for_each_run(const ParameterSpec& parameter, int64_t begin, int64_t end,
                  const std::function<void(int64_t local, int64_t full, int64_t count)>& visit) {
  if (parameter.split_dim < 0) {
    if (begin < end) visit(begin, begin, end - begin);
    return;
  }
  const auto dim = static_cast<size_t>(parameter.split_dim);
  int64_t inner = 1;  // elements behind one index of the divided dimension
  for (size_t d = dim + 1; d < parameter.shape.size(); ++d) inner *= parameter.shape[d];
  const int64_t whole = parameter.whole_shape()[dim];
  const int64_t local_stride = parameter.shape[dim] * inner, full_stride = whole * inner;
  for (int64_t outer = begin / local_stride; outer * local_stride < end; ++outer) {
    int64_t local = outer * local_stride;
    for (const Piece& piece : parameter.pieces) {
      const int64_t held = std::clamp<int64_t>(whole - piece.begin, 0, piece.size());  // the rest is padding
      const int64_t first = std::max(begin, local), last = std::min(end, local + held * inner);
      if (first < last) visit(first, outer * full_stride + piece.begin * inner + (first - local), last - first);
      local += piece.size() * inner;
    }
  }
}

UnitValues Unit::generation_values(const GenerationShape& shape, const Precision& precision) const {
  if (initial() != nullptr) throw UsageError(name() + " cannot generate: it is no built-in unit");
  UnitValues v = values({1, shape.rows}, precision);
  return {.output = v.output, .saved = v.saved, .forward_work = v.forward_work, .backward_work = {}};
}

std::vector<TrafficRow> Unit::generation_traffic(const GenerationShape& shape, const Precision& precision) const {
  return traffic({1, shape.rows}, precision).forward;
}

std::vector<int> recompute_set(const Unit& unit, const BatchShape& shape, const Precision& precision,
                               const std::vector<std::string>& names) {
  static const std::map<std::string, std::vector<std::string>> kStatistics = {
      {"qkv", {"rstd1", "mean1", "raw_qk", "rstd_qk"}},
      {"attended", {"lse"}},
      {"mid", {"rstd2", "mean2", "attention_out", "rstd_post1", "rstd_sum1", "mean_sum1"}},
      {"mlp_out", {"rstd_post2", "rstd_sum2", "mean_sum2"}}};
  const Slots saved = unit.values(shape, precision).saved;
  std::vector<std::string> wanted;
  const std::vector<std::string> legal = unit.recomputable();
  for (const std::string& name : names) {
    if (saved.empty()) break;  // keeps nothing: there is nothing to choose from
    if (std::find(legal.begin(), legal.end(), name) == legal.end())
      throw UsageError(fmt::format("{} keeps no value '{}' that could be computed again; use {}", unit.name(), name,
                                   legal.empty() ? "none or all" : base::join(legal, ", ")));
    wanted.push_back(name);
    if (const auto found = kStatistics.find(name); found != kStatistics.end())
      wanted.insert(wanted.end(), found->second.begin(), found->second.end());
  }
  std::vector<int> which;
  for (int i = 0; i < static_cast<int>(saved.size()); ++i)
    if (names.empty() ? !saved[i].name.empty() : std::ranges::find(wanted, saved[i].name) != wanted.end())
      which.push_back(i);
  return which;
}

namespace {

// Ring cuts a sequence into 2 cp chunks, so that every rank has early and late positions; ulysses into cp parts.
int64_t context_chunks(const Parallel& parallel) {
  if (parallel.cp_size == 1) return 1;
  return parallel.context == Context::ring ? 2 * parallel.cp_size : parallel.cp_size;
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
  if (parallel.cp_size > 1 && parallel.context == Context::ring) append(2 * parallel.cp_size - 1 - parallel.cp_rank);
  return positions;
}

}  // namespace trireme::model
