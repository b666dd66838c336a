#include "trireme/ops/latent/latent.h"

#include <ATen/ATen.h>

#include <bit>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/ops/announce.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/parallel.h"

namespace trireme::ops {
namespace {

constexpr int64_t kUnsupervised = -100;

// lowbias32 (Ettinger 2018), the hash of dropout's masks.
uint32_t hash32(uint32_t h) {
  h = (h ^ h >> 16) * 0x7feb352du;
  h = (h ^ h >> 15) * 0x846ca68bu;
  return h ^ h >> 16;
}

double sigmoid(double logit) {
  const double e = std::exp(-std::abs(logit));
  return (logit >= 0 ? 1 : e) / (1 + e);
}

// log(2) minus the entropy of a bit, in nats.
double divergence(double logit) {
  const double size = std::abs(logit), e = std::exp(-size), p = 1 / (1 + e);  // of the likelier value
  return std::max(0.0, std::log(2.0) - std::log1p(e) - (1 - p) * size);
}

template <class T>
double divergence_of(const T* logits, int64_t bits) {
  double sum = 0;
  for (int64_t h = 0; h < bits; ++h) sum += divergence(double(logits[h]));
  return sum;
}

// Calls body.operator()<T>(rows, bits) with T the dtype of `logits` [rows, bits].
template <class Body>
void with_logits(const char* operation, const at::Tensor& logits, const Body& body) {
  check_dims(operation, "logits", logits, 2);
  const bool wide = logits.scalar_type() == at::kDouble;
  check_tensor(operation, "logits", logits, logits.sizes(), wide ? at::kDouble : at::kFloat);
  if (!logits.is_cpu()) throw ShapeError(std::string(operation) + " runs on processors only");
  if (logits.size(1) < 1 || logits.size(1) > 64) throw ShapeError(std::string(operation) + ": a code has 1 to 64 bits");
  const Announced announced(
      [&] { return row_operation(operation, logits.scalar_type(), logits.size(0), logits.size(1), {&logits}); });
  if (announced.skipped()) return;
  if (wide)
    body.template operator()<double>(logits.size(0), logits.size(1));
  else
    body.template operator()<float>(logits.size(0), logits.size(1));
}

/// Scratch of one token's fold.
struct FoldScratch;

// One token: values s [n] of the codes first .. first + n - 1 are folded from the highest bit down. prefix[m ..
// 2m - 1] holds the probabilities of the lowest log2(m) bits.
template <class T>
void fold(T* gradient, const T* logits, T* s, double* prefix, int64_t n, int64_t bits, int64_t first) {
  const int own = std::countr_zero(static_cast<uint64_t>(n));
  double probability[64], outer = 1;
  for (int64_t h = 0; h < bits; ++h) probability[h] = sigmoid(double(logits[h]));
  for (int64_t h = own; h < bits; ++h) outer *= (first >> h & 1) != 0 ? probability[h] : 1 - probability[h];
  prefix[1] = 1;
  for (int h = 0; h + 1 < own; ++h) {
    const int64_t m = int64_t{1} << h;
    const double p = probability[h];
    for (int64_t d = 0; d < m; ++d) {
      prefix[2 * m + d] = (1 - p) * prefix[m + d];
      prefix[3 * m + d] = p * prefix[m + d];
    }
  }
  for (int h = own - 1; h >= 0; --h) {
    const int64_t m = int64_t{1} << h;
    const double p = probability[h];
    double difference = 0;
    for (int64_t d = 0; d < m; ++d) {
      const double zero = double(s[d]), one = double(s[m + d]);
      difference += prefix[m + d] * (one - zero);
      s[d] = static_cast<T>(zero + p * (one - zero));
    }
    gradient[h] += static_cast<T>(outer * p * (1 - p) * difference);
  }
  for (int64_t h = own; h < bits; ++h) {
    const double bit = (first >> h & 1) != 0 ? 1 : 0;
    gradient[h] += static_cast<T>(outer * (bit - probability[h]) * double(s[0]));
  }
}

}  // namespace

void latent_sample(const at::Tensor& codes, const at::Tensor& logits, const at::Tensor& keys) {
  with_logits("latent_sample", logits, [&]<class T>(int64_t rows, int64_t bits) {
    check_tensor("latent_sample", "codes", codes, {rows}, at::kLong);
    check_tensor("latent_sample", "keys", keys, {rows}, at::kInt);
    const T* logit = logits.data_ptr<T>();
    const auto* key = reinterpret_cast<const uint32_t*>(keys.data_ptr<int32_t>());
    auto* code = at::Tensor(codes).mutable_data_ptr<int64_t>();
    parallel_rows(rows, row_grain(8 * bits), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        uint64_t drawn = 0;
        for (int64_t h = 0; h < bits; ++h) {
          const double u = (double(hash32(key[t] + static_cast<uint32_t>(h) * 0x9E3779B9u)) + 0.5) * 0x1p-32;
          if (u < sigmoid(double(logit[t * bits + h]))) drawn |= uint64_t{1} << h;
        }
        code[t] = static_cast<int64_t>(drawn);
      }
    });
  });
}

void latent_divergence(const at::Tensor& sums, const at::Tensor& logits, const at::Tensor& targets, double free_nats) {
  with_logits("latent_divergence", logits, [&]<class T>(int64_t rows, int64_t bits) {
    check_tensor("latent_divergence", "sums", sums, {3}, at::kDouble);
    check_tensor("latent_divergence", "targets", targets, {rows}, at::kLong);
    const T* logit = logits.data_ptr<T>();
    const int64_t* target = targets.data_ptr<int64_t>();
    double divergence = 0, hinge = 0, above = 0;
    for (int64_t t = 0; t < rows; ++t) {  // in order: few operations, and the sum's bits are the same on every rank
      if (target[t] == kUnsupervised) continue;
      const double of_token = divergence_of(logit + t * bits, bits);
      divergence += of_token;
      if (of_token > free_nats) hinge += of_token - free_nats, above += 1;
    }
    auto* sum = at::Tensor(sums).mutable_data_ptr<double>();
    sum[0] = divergence, sum[1] = hinge, sum[2] = above;
  });
}

void latent_divergence_backward(const at::Tensor& d_logits, const at::Tensor& logits, const at::Tensor& targets,
                                double free_nats, double scale) {
  with_logits("latent_divergence_backward", logits, [&]<class T>(int64_t rows, int64_t bits) {
    check_tensor("latent_divergence_backward", "d_logits", d_logits, logits.sizes(), logits.scalar_type());
    check_tensor("latent_divergence_backward", "targets", targets, {rows}, at::kLong);
    const T* logit = logits.data_ptr<T>();
    const int64_t* target = targets.data_ptr<int64_t>();
    T* gradient = at::Tensor(d_logits).mutable_data_ptr<T>();
    parallel_rows(rows, row_grain(8 * bits), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        if (target[t] == kUnsupervised || !(divergence_of(logit + t * bits, bits) > free_nats)) continue;
        for (int64_t i = t * bits; i < (t + 1) * bits; ++i) {
          const double p = sigmoid(double(logit[i]));
          gradient[i] += static_cast<T>(scale * p * (1 - p) * double(logit[i]));
        }
      }
    });
  });
}

void latent_table_backward(const at::Tensor& d_logits, const at::Tensor& logits, const at::Tensor& scores,
                           int64_t first) {
  with_logits("latent_table_backward", logits, [&]<class T>(int64_t rows, int64_t bits) {
    check_dims("latent_table_backward", "scores", scores, 2);
    const int64_t n = scores.size(1);
    check_tensor("latent_table_backward", "scores", scores, {rows, n}, logits.scalar_type());
    check_tensor("latent_table_backward", "d_logits", d_logits, logits.sizes(), logits.scalar_type());
    if (n < 1 || !std::has_single_bit(static_cast<uint64_t>(n)) || first % n != 0)
      throw ShapeError("latent_table_backward: the codes of a part are a power of two, and begin at a multiple of it");
    const T* logit = logits.data_ptr<T>();
    T *score = at::Tensor(scores).mutable_data_ptr<T>(), *gradient = at::Tensor(d_logits).mutable_data_ptr<T>();
    parallel_rows(rows, row_grain(n), [&](int64_t begin, int64_t end) {
      double* prefix = thread_scratch<FoldScratch, double>(n + 1);
      for (int64_t t = begin; t < end; ++t)
        fold(gradient + t * bits, logit + t * bits, score + t * n, prefix, n, bits, first);
    });
  });
}

void latent_signs(const at::Tensor& signs, const at::Tensor& codes) {
  const auto dtype = compute_dtype("latent_signs", "signs", signs);
  check_dims("latent_signs", "signs", signs, 2);
  const int64_t rows = signs.size(0), bits = signs.size(1);
  check_tensor("latent_signs", "signs", signs, {rows, bits}, dtype);
  check_tensor("latent_signs", "codes", codes, {rows}, at::kLong);
  const Announced announced([&] { return row_operation("latent_signs", dtype, rows, bits, {&signs}); });
  if (announced.skipped()) return;
  const int64_t* code = codes.data_ptr<int64_t>();
  const auto write = [&]<class T>(T* out) {
    for (int64_t t = 0; t < rows; ++t)
      for (int64_t h = 0; h < bits; ++h)
        out[t * bits + h] = static_cast<T>((static_cast<uint64_t>(code[t]) >> h & 1) != 0 ? 1.0f : -1.0f);
  };
  at::Tensor to = signs;
  if (dtype == at::kDouble)
    write(to.data_ptr<double>());
  else if (dtype == at::kFloat)
    write(to.data_ptr<float>());
  else if (dtype == at::kHalf)
    write(to.data_ptr<at::Half>());
  else
    write(to.data_ptr<at::BFloat16>());
}

void latent_signs_backward(const at::Tensor& d_logits, const at::Tensor& logits, const at::Tensor& d_signs) {
  with_logits("latent_signs_backward", logits, [&]<class T>(int64_t rows, int64_t bits) {
    check_tensor("latent_signs_backward", "d_logits", d_logits, logits.sizes(), logits.scalar_type());
    check_tensor("latent_signs_backward", "d_signs", d_signs, logits.sizes(), logits.scalar_type());
    const T *logit = logits.data_ptr<T>(), *sign = d_signs.data_ptr<T>();
    T* gradient = at::Tensor(d_logits).mutable_data_ptr<T>();
    for (int64_t i = 0; i < rows * bits; ++i) {
      const double p = sigmoid(double(logit[i]));
      gradient[i] += static_cast<T>(2 * p * (1 - p) * double(sign[i]));
    }
  });
}

}  // namespace trireme::ops
