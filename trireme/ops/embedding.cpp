// Table look-up and its gradient. The gradient needs no atomic additions: a stable counting sort brings the
// occurrences of an id together, and each row of the table is then summed by one thread in order of t.
#include <algorithm>
#include <string>

#include "trireme/base/error.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/cuda_kernels.h"
#include "trireme/ops/elementwise_kernels.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/parallel.h"

namespace trireme::ops {
namespace {

constexpr int64_t kElsewhere = -1;  // an id whose row another rank holds

// Ids on a device are not read: who copied them there has checked them.

void check_positions(const char* operation, const char* name, const at::Tensor& positions, int64_t width,
                     at::ScalarType dtype, int64_t sequence, const at::Tensor& position_ids, int64_t num_tokens) {
  check_dims(operation, name, positions, 2);
  check_tensor(operation, name, positions, {positions.size(0), width}, dtype);
  if (position_ids.defined()) {
    check_tensor(operation, "position_ids", position_ids, {num_tokens}, at::kLong);
    if (!position_ids.is_cpu()) return;
    const int64_t* id = position_ids.data_ptr<int64_t>();
    for (int64_t t = 0; t < num_tokens; ++t)
      if (id[t] < 0 || id[t] >= positions.size(0))
        throw ShapeError(std::string(operation) + ": position_ids[" + std::to_string(t) + "] = " +
                         std::to_string(id[t]) + " is outside " + name + " of " + std::to_string(positions.size(0)) +
                         " rows; shorten the sequences or give the model more positions");
    return;
  }
  if (sequence < 1 || positions.size(0) < sequence)
    throw ShapeError(std::string(operation) + ": " + name + " has " + std::to_string(positions.size(0)) +
                     " rows, too few for sequences of " + std::to_string(sequence) + " tokens");
}

void check_ids(const char* operation, const at::Tensor& ids, int64_t num_tokens, int64_t vocabulary) {
  check_tensor(operation, "ids", ids, {num_tokens}, at::kLong);
  if (!ids.is_cpu()) return;
  const int64_t* id = ids.data_ptr<int64_t>();
  for (int64_t t = 0; t < num_tokens; ++t)
    if (id[t] != kElsewhere && (id[t] < 0 || id[t] >= vocabulary))
      throw ShapeError(std::string(operation) + ": ids[" + std::to_string(t) + "] = " + std::to_string(id[t]) +
                       " is outside the table of " + std::to_string(vocabulary) +
                       " rows; the tokenizer and the model's vocabulary do not belong together");
}

/// order becomes 0..T-1 sorted by id, equal ids in order of t; first[v]..first[v + 1] is where id v lies in it.
/// Rows that lie elsewhere are left out.
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
  check_ids(kOperation, ids, num_tokens, table.size(0));

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
  parallel_rows(num_tokens, row_grain(width),
                [&](int64_t first, int64_t last) { gather_rows(arguments, first, last); });
}

void embedding_backward(const Gradient& dtable, const Gradient& d_positions, const at::Tensor& dy,
                        const at::Tensor& ids, const at::Tensor& order, int64_t sequence,
                        const at::Tensor& position_ids, double scale) {
  constexpr auto kOperation = "embedding_backward";
  const auto dtype = compute_dtype(kOperation, "dy", dy);
  check_dims(kOperation, "dy", dy, 2);
  check_dims(kOperation, "dtable", dtable.to, 2);
  const int64_t num_tokens = dy.size(0), width = dy.size(1), vocabulary = dtable.to.size(0);
  check_tensor(kOperation, "dy", dy, dy.sizes(), dtype);
  check_gradient(kOperation, "dtable", dtable, {vocabulary, width}, dtype);
  check_tensor(kOperation, "order", order, {num_tokens}, at::kLong);
  if (d_positions.defined()) {
    const bool wide = d_positions.to.scalar_type() == statistics_dtype(dtype);
    check_positions(kOperation, "d_positions", d_positions.to, width, wide ? statistics_dtype(dtype) : dtype, sequence,
                    position_ids, num_tokens);
  }
  check_ids(kOperation, ids, num_tokens, vocabulary);

  int64_t* sorted = order.mutable_data_ptr<int64_t>();
  if (dy.is_cuda()) {
    const auto sum = [&](const Gradient& to, const int64_t* keys, double factor) {
      cuda_kernels().gather_sum({.dtype = storage_of(dtype),
                                 .width = width,
                                 .rows = dy.const_data_ptr(),
                                 .ids = keys,
                                 .num_tokens = num_tokens,
                                 .sequence = sequence,
                                 .order = sorted,
                                 .num_rows = to.to.size(0),
                                 .to = cuda_gradient(to),
                                 .scale = factor});
    };
    sum(dtable, ids.data_ptr<int64_t>(), scale);
    if (d_positions.defined()) sum(d_positions, position_ids.defined() ? position_ids.data_ptr<int64_t>() : nullptr, 1);
    return;
  }
  struct Firsts;
  int64_t* first = thread_scratch<Firsts, int64_t>(vocabulary + 1);
  sort_by_id(ids.data_ptr<int64_t>(), num_tokens, vocabulary, sorted, first);
  GatherSum arguments{.dtype = storage_of(dtype),
                      .width = width,
                      .out = dtable.to.mutable_data_ptr(),
                      .wide = dtable.to.scalar_type() != dtype,
                      .accumulate = dtable.accumulate,
                      .rows = dy.const_data_ptr(),
                      .order = sorted,
                      .first = first,
                      .count = first[vocabulary],
                      .scale = scale};
  parallel_rows(vocabulary, row_grain(width),
                [&](int64_t begin, int64_t end) { gather_sum_rows(arguments, begin, end); });

  if (!d_positions.defined()) return;
  // The same sum over another sorted order.
  const int64_t num_positions = d_positions.to.size(0);
  first = thread_scratch<Firsts, int64_t>(num_positions + 1);
  if (position_ids.defined())
    sort_by_id(position_ids.data_ptr<int64_t>(), num_tokens, num_positions, sorted, first);
  else
    sort_by_place(num_tokens, sequence, num_positions, sorted, first);
  arguments.out = d_positions.to.mutable_data_ptr();
  arguments.wide = d_positions.to.scalar_type() != dtype;
  arguments.accumulate = d_positions.accumulate;
  arguments.first = first;
  arguments.count = first[num_positions];
  arguments.scale = 1;
  parallel_rows(num_positions, row_grain(width),
                [&](int64_t begin, int64_t end) { gather_sum_rows(arguments, begin, end); });
}

}  // namespace trireme::ops
