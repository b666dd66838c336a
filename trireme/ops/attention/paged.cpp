// Attention over a cache in pages: argument checks, and how the work is cut into tasks (paged.h).
#include "trireme/ops/attention/paged.h"
#include "trireme/ops/announce.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "trireme/base/error.h"
#include "trireme/base/meter.h"
#include "trireme/ops/attention/attention.h"
#include "trireme/ops/attention/run.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/parallel.h"

namespace trireme::ops {
namespace {

constexpr auto kWrite = "cache_write";
constexpr auto kAttend = "attention_paged";

void check_pages(const char* operation, const at::Tensor& k_pages, const at::Tensor& v_pages, int64_t heads,
                 int64_t head_dim, at::ScalarType dtype) {
  check_tensor(operation, "k_pages", k_pages, {k_pages.size(0), heads, kAttentionPage, head_dim}, dtype);
  check_tensor(operation, "v_pages", v_pages, k_pages.sizes(), dtype);
}

void check_on_cpu(const char* operation, const at::Tensor& tensor) {
  if (!tensor.is_cpu())
    throw ShapeError(
        fmt::format("{}: the tensors are on {}, and generation has kernels for processors only; move them "
                    "there",
                    operation, tensor.device().str()));
}

void check_sequences(const std::vector<PagedSequence>& sequences, int64_t rows, int64_t pages) {
  for (size_t i = 0; i < sequences.size(); ++i) {
    const PagedSequence& s = sequences[i];
    if (s.tokens < 1 || s.first_row < 0 || s.first_row + s.tokens > rows)
      throw ShapeError(fmt::format("{}: sequence {} has the rows {} to {}, and there are {}", kAttend, i, s.first_row,
                                   s.first_row + s.tokens - 1, rows));
    if (s.length < s.tokens)
      throw ShapeError(fmt::format("{}: sequence {} has {} tokens in the cache, of which {} are new", kAttend, i,
                                   s.length, s.tokens));
    for (int64_t page = 0; page * kAttentionPage < s.length; ++page)
      if (s.pages[page] < 0 || s.pages[page] >= pages)
        throw ShapeError(
            fmt::format("{}: sequence {} has page {}, and the cache has {}", kAttend, i, s.pages[page], pages));
  }
}

std::vector<PagedTask> tasks_of(const std::vector<PagedSequence>& sequences, int64_t kv_heads, int64_t group) {
  const int64_t most = std::max<int64_t>(1, kPagedRows / group);
  std::vector<PagedTask> tasks;
  for (const PagedSequence& s : sequences)
    for (int64_t head = 0; head < kv_heads; ++head)
      for (int64_t first = 0; first < s.tokens; first += most)
        tasks.push_back({&s, head, first, std::min(most, s.tokens - first)});
  return tasks;
}

}  // namespace

void cache_write(const at::Tensor& k_pages, const at::Tensor& v_pages, const at::Tensor& k, const at::Tensor& v,
                 const at::Tensor& places, const AttentionKernel* kernel) {
  check_on_cpu(kWrite, k);
  const auto dtype = compute_dtype(kWrite, "k", k);
  check_dims(kWrite, "k", k, 2);
  const int64_t rows = k.size(0);
  check_dims(kWrite, "k_pages", k_pages, 4);
  const int64_t heads = k_pages.size(1), head_dim = k_pages.size(3), width = heads * head_dim,
                all = k_pages.size(0) * kAttentionPage;
  check_rows_view(kWrite, "k", k, {rows, width}, dtype);
  check_rows_view(kWrite, "v", v, {rows, width}, dtype);
  check_pages(kWrite, k_pages, v_pages, heads, head_dim, dtype);
  check_tensor(kWrite, "places", places, {rows}, at::kLong);
  const Announced announced([&] { return row_operation("cache_write", dtype, rows, width, {&k, &k, &v, &v}); });
  if (announced.skipped()) return;
  const auto* place = places.data_ptr<int64_t>();
  for (int64_t r = 0; r < rows; ++r)
    if (place[r] < 0 || place[r] >= all)
      throw ShapeError(fmt::format("{}: places[{}] is {}, and the cache has {} places", kWrite, r, place[r], all));
  const CacheWrite call{.rows = rows,
                        .heads = heads,
                        .head_dim = head_dim,
                        .k = k.const_data_ptr(),
                        .v = v.const_data_ptr(),
                        .k_stride = k.stride(0),
                        .v_stride = v.stride(0),
                        .k_pages = k_pages.mutable_data_ptr(),
                        .v_pages = v_pages.mutable_data_ptr(),
                        .places = place};
  const AttentionDtype kind = attention_dtype(kWrite, dtype);
  const CacheWritePass write = attention_kernel(kind, kernel).write[static_cast<int>(kind)];
  parallel_rows(rows, row_grain(width), [&](int64_t first, int64_t last) { write(call, first, last); });
}

void attention_paged(const at::Tensor& out, const at::Tensor& q, const at::Tensor& k_pages, const at::Tensor& v_pages,
                     const std::vector<PagedSequence>& sequences, const AttentionShape& shape,
                     const AttentionKernel* kernel) {
  check_on_cpu(kAttend, q);
  const Announced announced([&] {
    double pairs = 0;
    for (const PagedSequence& s : sequences) pairs += double(s.tokens) * double(s.length);
    const double width = double(shape.num_heads * shape.head_dim);
    return Operation{.name = "attention_paged",
                     .dtype = q.scalar_type(),
                     .m = q.size(0),
                     .n = shape.num_heads * shape.head_dim,
                     .k = shape.head_dim,
                     .flops = 4 * pairs * width,
                     .bytes = 2 * pairs * double(shape.num_kv_heads * shape.head_dim * q.element_size())};
  });
  if (announced.skipped()) return;
  const base::Metered metered(base::Activity::attention);
  const auto dtype = compute_dtype(kAttend, "q", q);
  AttentionShape one = shape;
  one.batch = one.sequence = 1;
  const AttentionCall numbers = checked_call(kAttend, one);
  check_dims(kAttend, "q", q, 2);
  check_rows_view(kAttend, "q", q, {q.size(0), shape.num_heads * shape.head_dim}, dtype);
  check_rows_view(kAttend, "out", out, q.sizes(), dtype);
  check_dims(kAttend, "k_pages", k_pages, 4);
  check_pages(kAttend, k_pages, v_pages, shape.num_kv_heads, shape.head_dim, dtype);
  check_sequences(sequences, q.size(0), k_pages.size(0));
  const PagedCall call{.num_heads = shape.num_heads,
                       .num_kv_heads = shape.num_kv_heads,
                       .head_dim = shape.head_dim,
                       .scale = numbers.scale,
                       .softcap = shape.softcap,
                       .window = shape.window,
                       .q = q.const_data_ptr(),
                       .out = out.mutable_data_ptr(),
                       .q_stride = q.stride(0),
                       .out_stride = out.stride(0),
                       .k = k_pages.const_data_ptr(),
                       .v = v_pages.const_data_ptr()};
  const AttentionDtype kind = attention_dtype(kAttend, dtype);
  const PagedPass run = attention_kernel(kind, kernel).paged[static_cast<int>(kind)];
  const int64_t group = shape.num_heads / shape.num_kv_heads;
  const std::vector<PagedTask> tasks = tasks_of(sequences, shape.num_kv_heads, group);
  const int64_t bytes = paged_scratch_bytes(std::max(group, kPagedRows), shape.head_dim),
                threads = std::min<int64_t>(at::get_num_threads(), std::ssize(tasks));
  std::atomic<size_t> taken = 0;  // sequences differ in length
  const size_t at_once = std::clamp<size_t>(tasks.size() / static_cast<size_t>(8 * threads), 1, 16);
  parallel_rows(threads, 1, [&](int64_t first, int64_t last) {
    struct Scratch;
    char* scratch = thread_scratch<Scratch, char>(bytes);
    for (int64_t thread = first; thread < last; ++thread)
      for (size_t i; (i = taken.fetch_add(at_once)) < tasks.size();)
        for (const size_t end = std::min(i + at_once, tasks.size()); i < end; ++i)
          run(call, tasks[i], i + 1 < end ? &tasks[i + 1] : nullptr, scratch);
  });
}

}  // namespace trireme::ops
