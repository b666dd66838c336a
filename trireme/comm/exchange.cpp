#include "trireme/comm/exchange.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "trireme/comm/fold.h"

namespace trireme::comm {
namespace {
std::vector<int64_t> prefix(std::span<const int64_t> counts) {
  std::vector<int64_t> begins(counts.size(), 0);
  std::exclusive_scan(counts.begin(), counts.end(), begins.begin(), int64_t{0});
  return begins;
}

int64_t largest(std::span<const int64_t> counts) { return counts.empty() ? 0 : *std::ranges::max_element(counts); }

Exchange phase(const Collective& call, int size) {
  Exchange e;
  e.output = call.output;
  e.input = call.input;
  e.options = call.options;
  e.give.resize(size);
  e.take.resize(size);
  return e;
}

Exchange all_gather(Exchange e, std::span<const int64_t> counts, int rank) {
  e.spread = e.gathers_all = true;
  e.max_count = largest(counts);
  const auto begins = prefix(counts);
  for (size_t k = 0; k < counts.size(); ++k) {
    e.give[k] = {0, counts[rank]};
    e.take[k] = {0, counts[k], begins[k]};
  }
  return e;
}

Exchange reduce_scatter(Exchange e, std::span<const int64_t> counts, int rank) {
  e.fold = true;
  e.max_count = largest(counts);
  const auto begins = prefix(counts);
  for (size_t k = 0; k < counts.size(); ++k) {
    e.give[k] = {begins[k], counts[k]};
    e.take[k] = {begins[rank], counts[rank], 0};
  }
  return e;
}

Exchange broadcast(Exchange e, int root, int rank) {
  e.spread = e.gathers_all = true;
  e.only_giver = root;
  e.max_count = e.input.numel();
  if (rank == root) std::ranges::fill(e.give, Exchange::Give{0, e.max_count});
  e.take[root] = {0, e.max_count, 0};
  return e;
}

Exchange reduce(Exchange e, int root, int rank) {
  e.fold = e.spread = true;
  e.max_count = e.input.numel();
  e.give[root] = {0, e.max_count};
  if (rank == root) std::ranges::fill(e.take, Exchange::Take{0, e.max_count, 0});
  return e;
}

Exchange gather(Exchange e, std::span<const int64_t> counts, int root, int rank) {
  e.spread = true;
  e.max_count = largest(counts);
  e.give[root] = {0, counts[rank]};
  const auto begins = prefix(counts);
  if (rank == root)
    for (size_t k = 0; k < counts.size(); ++k) e.take[k] = {0, counts[k], begins[k]};
  return e;
}

Exchange scatter(Exchange e, std::span<const int64_t> counts, int root, int rank) {
  e.only_giver = root;
  e.max_count = largest(counts);
  const auto begins = prefix(counts);
  if (rank == root)
    for (size_t k = 0; k < counts.size(); ++k) e.give[k] = {begins[k], counts[k]};
  e.take[root] = {begins[rank], counts[rank], 0};
  return e;
}

Exchange all_to_all(Exchange e, const Collective& call, int rank, std::span<const CallView> calls) {
  const auto in = prefix(call.input_counts), out = prefix(call.counts);
  for (size_t k = 0; k < e.give.size(); ++k) {
    e.give[k] = {in[k], call.input_counts[k]};
    e.take[k] = {0, call.counts[k], out[k]};
    e.max_count = std::max({e.max_count, call.input_counts[k], call.counts[k]});
    if (calls.empty()) continue;
    const auto theirs = calls[k].input_counts;
    e.take[k].source_begin = std::accumulate(theirs.begin(), theirs.begin() + rank, int64_t{0});
    e.max_count = std::max(e.max_count, largest(theirs));
  }
  return e;
}

// Every rank folds the whole vector in one phase. That is fast for small vectors, and the only way to add to outputs
// that may differ between ranks.
Exchange fold_whole(Exchange e) {
  e.fold = e.spread = true;
  e.stage = e.input.const_data_ptr() == e.output.const_data_ptr();
  e.max_count = e.input.numel();
  std::ranges::fill(e.give, Exchange::Give{0, e.max_count});
  std::ranges::fill(e.take, Exchange::Take{0, e.max_count, 0});
  return e;
}

// The ranks' slices in an all_reduce. Each is a number of whole cache lines, so no two ranks write to the same line.
std::vector<int64_t> even_counts(int64_t total, int size) {
  const int64_t each = ((total + size - 1) / size + 63) / 64 * 64;
  std::vector<int64_t> counts(size);
  for (int k = 0; k < size; ++k) counts[k] = std::clamp<int64_t>(total - k * each, 0, each);
  return counts;
}

std::vector<Exchange> all_reduce(const Collective& call, int rank, int size, int64_t whole_bytes) {
  const bool whole = call.options.accumulate || static_cast<int64_t>(call.input.nbytes()) <= whole_bytes;
  if (whole && whole_bytes >= 0) return {fold_whole(phase(call, size))};
  const auto counts = even_counts(call.input.numel(), size);
  const auto begins = prefix(counts);
  // Views of flat memory; the tensors may have any contiguous shape.
  const at::Tensor flat = call.output.view({-1});
  const at::Tensor mine = flat.narrow(0, begins[rank], counts[rank]);
  Exchange first = phase(call, size), second = phase(call, size);
  first.output = mine;
  second.output = flat;
  second.input = mine;
  second = all_gather(std::move(second), counts, rank);
  second.source = Exchange::Source::output;
  for (int k = 0; k < size; ++k) second.take[k].source_begin = begins[k];
  return {reduce_scatter(std::move(first), counts, rank), std::move(second)};
}
}  // namespace

std::vector<Exchange> plan_exchanges(const Collective& call, int rank, int size, std::span<const CallView> calls,
                                     int64_t whole_bytes) {
  switch (call.operation) {
    case Operation::allocate_shared:
    case Operation::all_gather:
      return {all_gather(phase(call, size), call.counts, rank)};
    case Operation::reduce_scatter:
      return {reduce_scatter(phase(call, size), call.counts, rank)};
    case Operation::all_reduce:
      return all_reduce(call, rank, size, whole_bytes);
    case Operation::broadcast:
      return {broadcast(phase(call, size), call.root, rank)};
    case Operation::reduce:
      return {reduce(phase(call, size), call.root, rank)};
    case Operation::gather:
      return {gather(phase(call, size), call.counts, call.root, rank)};
    case Operation::scatter:
      return {scatter(phase(call, size), call.counts, call.root, rank)};
    case Operation::all_to_all:
      return {all_to_all(phase(call, size), call, rank, calls)};
    case Operation::send:
    case Operation::receive:
    case Operation::barrier:
      break;
  }
  return {};
}

Exchange plan_slice_for_all(const Collective& call, int rank, int size) {
  const auto counts = even_counts(call.input.numel(), size);
  Exchange e = reduce_scatter(phase(call, size), counts, rank);
  const int64_t begin = e.take[rank].source_begin;
  for (Exchange::Take& take : e.take) take.begin = begin;
  return e;
}

void exchange_with_self(const Exchange& phase, int rank) {
  const Exchange::Take& take = phase.take[rank];
  if (take.count == 0) return;
  const auto* from =
      static_cast<const std::byte*>(phase.input.const_data_ptr()) + phase.give[rank].begin * phase.input.element_size();
  auto* to = static_cast<std::byte*>(phase.output.mutable_data_ptr()) + take.begin * phase.output.element_size();
  if (phase.fold) {
    const void* sources[] = {from};
    fold(to, phase.output.scalar_type(), sources, phase.input.scalar_type(), take.count, phase.options);
  } else if (from != to) {
    std::memcpy(to, from, take.count * phase.output.element_size());
  }
}

}  // namespace trireme::comm
