// Table look-up and its gradient. The gradient needs no atomic additions: a stable counting sort puts equal ids side by
// side, and one thread sums each row of the table in order of t.
#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/ops/announce.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/cuda/kernels.h"
#include "trireme/ops/elementwise/elementwise_kernels.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/parallel.h"

namespace trireme::ops {
namespace {

constexpr int64_t kElsewhere = -1;  // the id of a row of another rank

void check_positions(const char* operation, const char* name, const at::Tensor& positions, int64_t width,
                     at::ScalarType dtype, int64_t sequence, const at::Tensor& position_ids, int64_t num_tokens) {
  check_dims(operation, name, positions, 2);
  const int64_t rows = positions.size(0);
  check_tensor(operation, name, positions, {rows, width}, dtype);
  if (position_ids.defined()) {
    check_tensor(operation, "position_ids", position_ids, {num_tokens}, at::kLong);
    return check_ids(operation, "position_ids", position_ids, rows, std::nullopt, [=] {
      return fmt::format("{} of {} rows; shorten the sequences or give the model more positions", name, rows);
    });
  }
  if (sequence < 1 || rows < sequence)
    throw ShapeError(
        fmt::format("{}: {} has {} rows, too few for sequences of {} tokens", operation, name, rows, sequence));
}

void check_token_ids(const char* operation, const at::Tensor& ids, int64_t num_tokens, int64_t vocabulary) {
  check_tensor(operation, "ids", ids, {num_tokens}, at::kLong);
  check_ids(operation, "ids", ids, vocabulary, kElsewhere, [=] {
    return fmt::format("the table of {} rows; the tokenizer and the model's vocabulary do not belong together",
                       vocabulary);
  });
}

/// order becomes 0..T-1 sorted by id, equal ids in order of t; first[v]..first[v + 1] is the range of id v.
/// Rows of other ranks are left out.
void sort_by_id(const int64_t* ids, int64_t num_tokens, int64_t vocabulary, int64_t* order, int64_t* first) {
  std::fill(first, first + vocabulary + 1, 0);
  for (int64_t t = 0; t < num_tokens; ++t)
    if (ids[t] != kElsewhere) ++first[ids[t] + 1];
  for (int64_t v = 0; v < vocabulary; ++v) first[v + 1] += first[v];
  // first[v] serves as the cursor of id v and ends where v + 1 begins: moved back by one place afterwards.
  for (int64_t t = 0; t < num_tokens; ++t)
    if (ids[t] != kElsewhere) order[first[ids[t]]++] = t;
  for (int64_t v = vocabulary; v > 0; --v) first[v] = first[v - 1];
  first[0] = 0;
}

/// The same for ids t % sequence: position s is the id of rows s, s + S, s + 2 S, ...
void sort_by_place(int64_t num_tokens, int64_t sequence, int64_t num_positions, int64_t* order, int64_t* first) {
  int64_t next = 0;
  for (int64_t s = 0; s < num_positions; ++s) {
    first[s] = next;
    if (s < sequence)
      for (int64_t t = s; t < num_tokens; t += sequence) order[next++] = t;
  }
  first[num_positions] = next;
}

}  // namespace

void embedding_forward(const at::Tensor& y, const at::Tensor& ids, const at::Tensor& table, const at::Tensor& positions,
                       int64_t sequence, const at::Tensor& position_ids, double scale) {
  constexpr auto kOperation = "embedding_forward";
  const auto dtype = compute_dtype(kOperation, "table", table);
  check_dims(kOperation, "table", table, 2);
  check_dims(kOperation, "y", y, 2);
  const int64_t num_tokens = y.size(0), width = table.size(1);
  check_tensor(kOperation, "table", table, table.sizes(), dtype);
  check_tensor(kOperation, "y", y, {num_tokens, width}, dtype);
  if (positions.defined())
    check_positions(kOperation, "positions", positions, width, dtype, sequence, position_ids, num_tokens);
  check_token_ids(kOperation, ids, num_tokens, table.size(0));

  const Announced announced([&] { return row_operation(kOperation, dtype, num_tokens, width, {&y, &y}); });
  if (announced.skipped()) return;
  const Gather arguments{.dtype = storage_of(dtype),
                         .width = width,
                         .y = y.mutable_data_ptr(),
                         .table = table.const_data_ptr(),
                         .ids = ids.data_ptr<int64_t>(),
                         .addends = positions.defined() ? positions.const_data_ptr() : nullptr,
                         .places = position_ids.defined() ? position_ids.data_ptr<int64_t>() : nullptr,
                         .sequence = sequence,
                         .scale = scale};
  if (y.is_cuda()) return cuda_kernels().gather(arguments, num_tokens);
  run_rows(gather_rows, arguments, num_tokens, width);
}

void embedding_backward(const Gradient& dtable, const Gradient& d_positions, const at::Tensor& dy,
                        const at::Tensor& ids, const at::Tensor& order, int64_t sequence,
                        const at::Tensor& position_ids, double scale) {
  constexpr auto kOperation = "embedding_backward";
  const auto dtype = compute_dtype(kOperation, "dy", dy);
  check_dims(kOperation, "dy", dy, 2);
  const int64_t num_tokens = dy.size(0), width = dy.size(1);
  check_tensor(kOperation, "dy", dy, dy.sizes(), dtype);
  check_tensor(kOperation, "order", order, {num_tokens}, at::kLong);
  if (dtable.defined()) {
    check_dims(kOperation, "dtable", dtable.to, 2);
    const int64_t vocabulary = dtable.to.size(0);
    check_gradient(kOperation, "dtable", dtable, {vocabulary, width}, dtype);
    check_token_ids(kOperation, ids, num_tokens, vocabulary);
  }
  if (d_positions.defined()) {
    const bool wide = d_positions.to.scalar_type() == statistics_dtype(dtype);
    check_positions(kOperation, "d_positions", d_positions.to, width, wide ? statistics_dtype(dtype) : dtype, sequence,
                    position_ids, num_tokens);
  }

  const Announced announced([&] {
    const int64_t written = (dtable.defined() && !dtable.accumulate ? dtable.to.numel() : 0);
    Operation operation = row_operation(kOperation, dtype, num_tokens, width, {&dy, &dy});
    operation.k = dtable.defined() ? dtable.to.size(0) : 1;
    operation.bytes += double(written) * double(dy.element_size());
    return operation;
  });
  if (announced.skipped()) return;
  const auto* places = position_ids.defined() ? position_ids.data_ptr<int64_t>() : nullptr;
  int64_t* sorted = order.mutable_data_ptr<int64_t>();
  // Keys: of each row of dy; null: its place in the sequence.
  const auto sum = [&](const Gradient& to, const int64_t* keys, double factor) {
    if (!to.defined()) return;
    const int64_t num_rows = to.to.size(0);
    if (dy.is_cuda())
      return cuda_kernels().gather_sum({.dtype = storage_of(dtype),
                                        .width = width,
                                        .rows = dy.const_data_ptr(),
                                        .ids = keys,
                                        .num_tokens = num_tokens,
                                        .sequence = sequence,
                                        .order = sorted,
                                        .num_rows = num_rows,
                                        .to = cuda_gradient(to),
                                        .scale = factor});
    struct Firsts;
    int64_t* first = thread_scratch<Firsts, int64_t>(num_rows + 1);
    if (keys != nullptr)
      sort_by_id(keys, num_tokens, num_rows, sorted, first);
    else
      sort_by_place(num_tokens, sequence, num_rows, sorted, first);
    const GatherSum arguments{.dtype = storage_of(dtype),
                              .width = width,
                              .out = to.to.mutable_data_ptr(),
                              .wide = to.to.scalar_type() != dtype,
                              .accumulate = to.accumulate,
                              .rows = dy.const_data_ptr(),
                              .order = sorted,
                              .first = first,
                              .count = first[num_rows],
                              .scale = factor};
    run_rows(gather_sum_rows, arguments, num_rows, width);
  };
  sum(dtable, ids.data_ptr<int64_t>(), scale);
  sum(d_positions, places, 1);
}

}  // namespace trireme::ops
