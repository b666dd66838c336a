// Attention over pages has the bits of attention_forward on the whole sequence, whatever else is in the call and
// however a sequence was cut into runs.
#include "trireme/ops/attention/paged.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/ops/attention_support.h"
#include "trireme/base/error.h"

namespace trireme::ops {
namespace {

struct Sequence {
  at::Tensor qkv, want, got;  // [S, R], [S, H*d]
  int64_t done = 0;
  std::vector<int32_t> pages;
};

class Cache {
 public:
  Cache(const AttentionShape& shape, int64_t pages, at::ScalarType dtype)
      : k(at::full({pages, shape.num_kv_heads, kAttentionPage, shape.head_dim}, NAN, dtype)), v(k.clone()) {
    for (int64_t page = 0; page < pages; ++page) free_.push_back(static_cast<int32_t>(page));
    std::shuffle(free_.begin(), free_.end(), std::mt19937(7));
  }
  int32_t take() {
    const int32_t page = free_.back();
    free_.pop_back();
    return page;
  }
  at::Tensor k, v;

 private:
  std::vector<int32_t> free_;
};

at::Tensor forward(const AttentionShape& shape, const at::Tensor& qkv, const AttentionKernel& kernel) {
  AttentionShape whole = shape;
  whole.batch = 1, whole.sequence = qkv.size(0);
  const at::Tensor out = at::empty({qkv.size(0), shape.num_heads * shape.head_dim}, qkv.options()),
                   lse = at::empty({1, shape.num_heads, qkv.size(0)},
                                   qkv.options().dtype(qkv.scalar_type() == at::kDouble ? at::kDouble : at::kFloat)),
                   work = at::empty({attention_workspace_bytes(whole, qkv.scalar_type())}, at::kByte);
  attention_forward(out, lse, qkv, whole, work, {}, &kernel);
  return out;
}

// One call with the next tokens of some sequences.
void run_some(std::vector<Sequence>& all, Cache& cache, const AttentionShape& shape, const AttentionKernel& kernel,
              std::mt19937& random) {
  std::vector<PagedSequence> sequences;
  std::vector<at::Tensor> rows;
  std::vector<int64_t> places;
  std::vector<Sequence*> taken;
  for (Sequence& s : all) {
    const int64_t left = s.qkv.size(0) - s.done;
    if (left == 0 || random() % 3 == 0) continue;
    const int64_t count = random() % 2 == 0 ? 1 : 1 + static_cast<int64_t>(random()) % left;
    for (int64_t i = s.done; i < s.done + count; ++i) {
      if (i % kAttentionPage == 0) s.pages.push_back(cache.take());
      places.push_back(s.pages.back() * kAttentionPage + i % kAttentionPage);
    }
    sequences.push_back({std::ssize(places) - count, count, s.done + count, nullptr});
    rows.push_back(s.qkv.narrow(0, s.done, count));
    s.done += count;
    taken.push_back(&s);
  }
  if (taken.empty()) return;
  for (size_t i = 0; i < taken.size(); ++i) sequences[i].pages = taken[i]->pages.data();
  const int64_t heads = shape.num_heads * shape.head_dim, kv = shape.num_kv_heads * shape.head_dim;
  const at::Tensor qkv = at::cat(rows), out = at::full({qkv.size(0), heads}, NAN, qkv.options());
  cache_write(cache.k, cache.v, qkv.narrow(1, heads, kv), qkv.narrow(1, heads + kv, kv), at::tensor(places, at::kLong),
              &kernel);
  attention_paged(out, qkv.narrow(1, 0, heads), cache.k, cache.v, sequences, shape, &kernel);
  for (size_t i = 0; i < taken.size(); ++i) {
    const PagedSequence& s = sequences[i];
    taken[i]->got.narrow(0, s.length - s.tokens, s.tokens).copy_(out.narrow(0, s.first_row, s.tokens));
  }
}

TEST(AttentionPaged, HasTheBitsOfTheForward) {
  const int threads = at::get_num_threads();
  std::mt19937 random(11);
  const std::vector<AttentionShape> shapes = {{.num_heads = 4, .num_kv_heads = 2, .head_dim = 64},
                                              {.num_heads = 3, .num_kv_heads = 1, .head_dim = 20},
                                              {.num_heads = 2, .num_kv_heads = 2, .head_dim = 13},
                                              {.num_heads = 8, .num_kv_heads = 1, .head_dim = 32, .softcap = 5},
                                              {.num_heads = 2, .num_kv_heads = 2, .head_dim = 48, .window = 37},
                                              {.num_heads = 2, .num_kv_heads = 2, .head_dim = 128},
                                              {.num_heads = 2, .num_kv_heads = 2, .head_dim = 112, .softcap = 5},
                                              {.num_heads = 6, .num_kv_heads = 2, .head_dim = 128, .window = 150}};
  for (const AttentionShape& shape : shapes)
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf})
      for (const AttentionKernel* kernel : attention_kernels()) {
        if (dtype == at::kDouble && kernel != attention_kernels().back()) continue;
        at::set_num_threads(1 + static_cast<int>(random() % 2));
        Cache cache(shape, 16, dtype);
        std::vector<Sequence> all;
        for (const int64_t length : {1, 130, 300, 77}) {
          Sequence s;
          s.qkv =
              at::randn({length, (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim}, at::kDouble).to(dtype);
          s.want = forward(shape, s.qkv, *kernel);
          s.got = at::full_like(s.want, NAN);
          all.push_back(std::move(s));
        }
        while (std::ranges::any_of(all, [](const Sequence& s) { return s.done < s.qkv.size(0); }))
          run_some(all, cache, shape, *kernel, random);
        for (const Sequence& s : all)
          EXPECT_TRUE(at::equal(s.got, s.want))
              << kernel->name << " " << c10::toString(dtype) << ", heads " << shape.num_heads << ", d "
              << shape.head_dim << ", window " << shape.window << ", length " << s.qkv.size(0);
      }
  at::set_num_threads(threads);
}

TEST(AttentionPaged, RefusesWhatDoesNotFit) {
  const AttentionShape shape{.num_heads = 2, .num_kv_heads = 1, .head_dim = 16};
  const at::Tensor q = at::zeros({3, 32}), pages = at::zeros({2, 1, kAttentionPage, 16}), out = at::empty_like(q);
  const std::vector<int32_t> table = {1, 2};
  const auto attend = [&](const PagedSequence& s) { attention_paged(out, q, pages, pages, {s}, shape); };
  EXPECT_NO_THROW(attend({0, 3, 100, table.data()}));
  EXPECT_THROW(attend({0, 3, 200, table.data()}), ShapeError);  // its second page is none of the cache
  EXPECT_THROW(attend({1, 3, 100, table.data()}), ShapeError);  // four rows
  EXPECT_THROW(attend({0, 3, 2, table.data()}), ShapeError);  // shorter than what is new
  const at::Tensor k = at::zeros({1, 16});
  EXPECT_NO_THROW(cache_write(pages, pages, k, k, at::full({1}, 255, at::kLong)));
  EXPECT_THROW(cache_write(pages, pages, k, k, at::full({1}, 256, at::kLong)), ShapeError);
  EXPECT_THROW(cache_write(pages, pages.narrow(0, 0, 1), k, k, at::full({1}, 0, at::kLong)), ShapeError);
}

}  // namespace
}  // namespace trireme::ops
