// Look-up of columns in a table [K,V] with few rows, and its gradient: the A of an embedding's adapter, as PEFT stores
// it. There are T K elements to copy, so one thread does it. The gradient sums the tokens of one id in the order of t,
// as embedding_backward does (embedding.cpp).
#include <algorithm>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/ops/announce.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/storage.h"

namespace trireme::ops {
namespace {

constexpr int64_t kOnOtherRank = -1;

void check_columns(const char* operation, const at::Tensor& narrow_rows, const at::Tensor& ids, const at::Tensor& table,
                   at::ScalarType dtype) {
  check_dims(operation, "y", narrow_rows, 2);
  check_dims(operation, "table", table, 2);
  check_tensor(operation, "y", narrow_rows, {narrow_rows.size(0), table.size(0)}, dtype);
  check_tensor(operation, "ids", ids, {narrow_rows.size(0)}, at::kLong);
  check_ids(operation, "ids", ids, table.size(1), kOnOtherRank, [] { return std::string("the table's columns"); });
  if (table.is_cuda()) throw ShapeError(std::string(operation) + ": it computes on processors only");
}

/// Adds sums of rows with one id to column `id`, in the order of t. Out is the stored type of the gradient.
template <class T, class Out>
void add_columns(const Gradient& d, const at::Tensor& dy, const int64_t* ids, const int64_t* order, int64_t count,
                 double scale) {
  const int64_t rank = d.to.size(0), vocabulary = d.to.size(1);
  const auto* from = static_cast<const T*>(dy.const_data_ptr());
  auto* to = static_cast<Out*>(d.to.mutable_data_ptr());
  for (int64_t first = 0, last; first < count; first = last) {
    const int64_t id = ids[order[first]];
    for (last = first + 1; last < count && ids[order[last]] == id;) ++last;
    for (int64_t k = 0; k < rank; ++k) {
      Wide<T> sum = 0;
      for (int64_t i = first; i < last; ++i) sum += widen(from[order[i] * rank + k]);
      Out& place = to[k * vocabulary + id];
      place = narrow<Out>(static_cast<Wide<Out>>(widen(place) + static_cast<Wide<T>>(scale) * sum));
    }
  }
}

}  // namespace

void embedding_columns_forward(const at::Tensor& y, const at::Tensor& ids, const at::Tensor& table, double scale) {
  constexpr auto kOperation = "embedding_columns_forward";
  const auto dtype = compute_dtype(kOperation, "table", table);
  check_tensor(kOperation, "table", table, table.sizes(), dtype);
  check_columns(kOperation, y, ids, table, dtype);
  const int64_t tokens = y.size(0), rank = y.size(1), vocabulary = table.size(1);
  const Announced announced([&] { return row_operation(kOperation, dtype, tokens, rank, {&y, &y}); });
  if (announced.skipped()) return;
  const auto* id = ids.data_ptr<int64_t>();
  with_storage(storage_of(dtype), [&]<class T>() {
    const auto* from = static_cast<const T*>(table.const_data_ptr());
    auto* to = static_cast<T*>(y.mutable_data_ptr());
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t k = 0; k < rank; ++k) {
        const Wide<T> value = id[t] == kOnOtherRank ? Wide<T>(0) : widen(from[k * vocabulary + id[t]]);
        to[t * rank + k] = narrow<T>(static_cast<Wide<T>>(scale) * value);
      }
  });
}

void embedding_columns_backward(const Gradient& dtable, const at::Tensor& dy, const at::Tensor& ids,
                                const at::Tensor& order, double scale) {
  constexpr auto kOperation = "embedding_columns_backward";
  if (!dtable.defined()) return;
  const auto dtype = compute_dtype(kOperation, "dy", dy);
  check_dims(kOperation, "dtable", dtable.to, 2);
  check_gradient(kOperation, "dtable", dtable, dtable.to.sizes(), dtype);
  check_columns(kOperation, dy, ids, dtable.to, dtype);
  check_tensor(kOperation, "order", order, {dy.size(0)}, at::kLong);
  const Announced announced([&] { return row_operation(kOperation, dtype, dy.size(0), dy.size(1), {&dy, &dy}); });
  if (announced.skipped()) return;
  if (!dtable.accumulate) at::Tensor(dtable.to).zero_();
  const auto* id = ids.data_ptr<int64_t>();
  auto* sorted = order.mutable_data_ptr<int64_t>();
  int64_t count = 0;
  for (int64_t t = 0; t < dy.size(0); ++t)
    if (id[t] != kOnOtherRank) sorted[count++] = t;
  std::sort(sorted, sorted + count, [&](int64_t a, int64_t b) { return id[a] != id[b] ? id[a] < id[b] : a < b; });
  with_storage(storage_of(dtype), [&]<class T>() {
    if (dtable.to.scalar_type() == dtype)
      add_columns<T, T>(dtable, dy, id, sorted, count, scale);
    else
      add_columns<T, Wide<T>>(dtable, dy, id, sorted, count, scale);
  });
}

}  // namespace trireme::ops
