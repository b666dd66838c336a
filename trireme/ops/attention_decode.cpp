#include <algorithm>
#include <cmath>
#include <string>

#include "trireme/base/error.h"
#include "trireme/ops/attention.h"
#include "trireme/ops/attention_run.h"

namespace trireme::ops {
namespace {

/// In sixteen partial sums, which compilers turn into vectors.
template <class Storage, class Acc>
Acc dot(const Storage* a, const Storage* b, int64_t n) {
  constexpr int64_t kLanes = 16;
  Acc partial[kLanes] = {}, sum = 0;
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes)
    for (int64_t l = 0; l < kLanes; ++l) partial[l] += static_cast<Acc>(a[j + l]) * static_cast<Acc>(b[j + l]);
  for (; j < n; ++j) sum += static_cast<Acc>(a[j]) * static_cast<Acc>(b[j]);
  for (const Acc x : partial) sum += x;
  return sum;
}

/// One head: a running maximum, sum and weighted sum of values (Milakov and Gimelshein, 2018), kept in `acc` [d].
template <class Storage, class Acc>
void decode_head(Storage* out, const Storage* q, const Storage* k, const Storage* v, int64_t begin, int64_t length,
                 int64_t stride, int64_t d, Acc scale) {
  // The weighted sum stays in blocks of the head on the stack: wide heads pass over the scores once per block.
  constexpr int64_t kBlock = 256;
  for (int64_t first = 0; first < d; first += kBlock) {
    const int64_t width = std::min(kBlock, d - first);
    Acc acc[kBlock] = {}, highest = -INFINITY, sum = 0;
    for (int64_t t = begin; t < length; ++t) {
      const Acc score = dot<Storage, Acc>(q, k + t * stride, d) * scale;
      if (score > highest) {
        const Acc shrink = std::exp(highest - score);
        highest = score, sum *= shrink;
        for (int64_t j = 0; j < width; ++j) acc[j] *= shrink;
      }
      const Acc p = std::exp(score - highest);
      sum += p;
      for (int64_t j = 0; j < width; ++j) acc[j] += p * static_cast<Acc>(v[t * stride + first + j]);
    }
    for (int64_t j = 0; j < width; ++j) out[first + j] = static_cast<Storage>(acc[j] / sum);
  }
}

template <class Storage, class Acc>
void decode(const at::Tensor& out, const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache,
            const at::Tensor& lengths, const AttentionShape& shape) {
  const int64_t d = shape.head_dim, stride = shape.num_kv_heads * d, capacity = k_cache.size(1);
  const int64_t group = shape.num_heads / shape.num_kv_heads;
  const double scale = shape.scale != 0 ? shape.scale : 1 / std::sqrt(static_cast<double>(d));
  for (int64_t b = 0; b < shape.batch; ++b) {
    const int64_t length = lengths.const_data_ptr<int64_t>()[b];
    const int64_t begin = shape.window > 0 ? std::max<int64_t>(0, length - shape.window) : 0;
    for (int64_t h = 0; h < shape.num_heads; ++h) {
      const int64_t row = (b * shape.num_heads + h) * d, cached = b * capacity * stride + h / group * d;
      decode_head<Storage, Acc>(out.mutable_data_ptr<Storage>() + row, q.const_data_ptr<Storage>() + row,
                                k_cache.const_data_ptr<Storage>() + cached, v_cache.const_data_ptr<Storage>() + cached,
                                begin, length, stride, d, static_cast<Acc>(scale));
    }
  }
}

}  // namespace

void attention_decode(const at::Tensor& out, const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache,
                      const at::Tensor& lengths, const AttentionShape& shape) {
  const auto require = [](bool holds, const std::string& rule) {
    if (!holds) throw ShapeError("attention_decode: " + rule);
  };
  require(shape.num_kv_heads > 0 && shape.num_heads % shape.num_kv_heads == 0, "num_kv_heads must divide num_heads");
  check_attention_window("attention_decode", shape.window);
  const int64_t width = shape.num_heads * shape.head_dim, kv_width = shape.num_kv_heads * shape.head_dim;
  require(k_cache.dim() == 3 && k_cache.size(0) == shape.batch && k_cache.size(2) == kv_width &&
              k_cache.sizes() == v_cache.sizes(),
          "k_cache and v_cache must both be [batch, capacity, num_kv_heads * head_dim]");
  require(q.sizes() == at::IntArrayRef({shape.batch, width}) && out.sizes() == q.sizes(),
          "q and out must be [batch, num_heads * head_dim]");
  require(lengths.scalar_type() == at::kLong && lengths.dim() == 1 && lengths.size(0) == shape.batch,
          "lengths must be [batch] of int64");
  for (const at::Tensor* x : {&out, &q, &k_cache, &v_cache, &lengths})
    require(x->is_contiguous() && x->is_cpu(), "every tensor must be contiguous and on the CPU");
  for (const at::Tensor* x : {&out, &k_cache, &v_cache})
    require(x->scalar_type() == q.scalar_type(), "out, q, k_cache and v_cache must have one dtype");
  for (int64_t b = 0; b < shape.batch; ++b) {
    const int64_t length = lengths.const_data_ptr<int64_t>()[b];
    require(length >= 1 && length <= k_cache.size(1),
            "lengths[" + std::to_string(b) + "] is " + std::to_string(length) + ", the cache holds 1 to " +
                std::to_string(k_cache.size(1)) + " tokens; make the cache longer");
  }
  if (q.scalar_type() == at::kDouble)
    decode<double, double>(out, q, k_cache, v_cache, lengths, shape);
  else if (q.scalar_type() == at::kFloat)
    decode<float, float>(out, q, k_cache, v_cache, lengths, shape);
  else if (q.scalar_type() == at::kBFloat16)
    decode<at::BFloat16, float>(out, q, k_cache, v_cache, lengths, shape);
  else
    require(false, "q must be float64, float32 or bfloat16");
}

}  // namespace trireme::ops
