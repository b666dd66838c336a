#include "trireme/ops/cuda/tuned_product.h"

#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cublasLt.h>

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "trireme/ops/cuda/scratch.h"

namespace trireme::ops::cuda {
namespace {

constexpr double kLarge = 1e10;  ///< operations of a product from which on the choice is worth its time
constexpr int kProposals = 8, kTimedRuns = 3;
constexpr float kFaster = 0.98f;  ///< another algorithm takes at most this part of the first one's time

template <class T, auto kDestroy>
class Handle {
 public:
  Handle() = default;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (value_ != nullptr) kDestroy(value_);
  }
  T* to() { return &value_; }
  operator T() const { return value_; }

 private:
  T value_ = nullptr;
};

cudaDataType_t type_of(Product::Format format) {
  return format == Product::Format::e4m3   ? CUDA_R_8F_E4M3
         : format == Product::Format::e5m2 ? CUDA_R_8F_E5M2
                                           : CUDA_R_16BF;
}

using Operation = Handle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;

/// How matrices are multiplied; scales differ from call to call.
void describe(Operation& operation, const Product& p, const Scales& scales) {
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value);
  };
  cublasLtMatmulDescCreate(operation.to(), CUBLAS_COMPUTE_32F, CUDA_R_32F);
  set(CUBLASLT_MATMUL_DESC_TRANSA, p.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, p.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (scales.a != nullptr) set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scales.a);
  if (scales.b != nullptr) set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scales.b);
  if (p.a_format == Product::Format::e4m3 && p.b_format == Product::Format::e4m3)
    set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1});
}

/// What cuBLASLt must know of a product.
class Description {
 public:
  explicit Description(const Product& p, const Scales& scales) {
    const auto layout = [](auto& of, cudaDataType_t type, bool transposed, int64_t rows, int64_t columns, int64_t ld) {
      if (transposed) std::swap(rows, columns);
      cublasLtMatrixLayoutCreate(of.to(), type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), ld);
    };
    describe(operation, p, scales);
    layout(a, type_of(p.a_format), p.a_transposed, p.m, p.k, p.a_ld);
    layout(b, type_of(p.b_format), p.b_transposed, p.k, p.n, p.b_ld);
    layout(c, p.wide ? CUDA_R_32F : CUDA_R_16BF, false, p.m, p.n, p.c_ld);
  }

  Operation operation;
  Handle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy> a, b, c;
};

struct Chosen {
  std::shared_ptr<const Description> description;
  std::optional<cublasLtMatmulAlgo_t> algorithm;  ///< absent: cuBLASLt has none
  bool is_final = true;  ///< false: of these operands every algorithm makes the same, so the next ones are looked at
};

bool run(const Product& p, const Description& d, cublasLtMatmulDesc_t operation, const cublasLtMatmulAlgo_t& algorithm,
         const void* a, const void* b, const void* addend, void* c) {
  const float one = 1, beta = p.accumulate ? 1 : 0;
  return cublasLtMatmul(at::cuda::getCurrentCUDABlasLtHandle(), operation, &one, a, d.a, b, d.b, &beta, addend, d.c, c,
                        d.c, &algorithm, at::cuda::getCUDABlasLtWorkspace(), at::cuda::getCUDABlasLtWorkspaceSize(),
                        current_stream()) == CUBLAS_STATUS_SUCCESS;
}

/// cuBLASLt's proposals, best first by its own estimate.
std::vector<cublasLtMatmulAlgo_t> proposals(const Description& d) {
  Handle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference;
  cublasLtMatmulPreferenceCreate(preference.to());
  const size_t workspace = at::cuda::getCUDABlasLtWorkspaceSize();
  // Partial sums are added as float, not rounded to bfloat16 before.
  const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                       sizeof workspace);
  cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
                                       sizeof schemes);
  std::array<cublasLtMatmulHeuristicResult_t, kProposals> results;
  int found = 0;
  cublasLtMatmulAlgoGetHeuristic(at::cuda::getCurrentCUDABlasLtHandle(), d.operation, d.a, d.b, d.c, d.c, preference,
                                 kProposals, results.data(), &found);
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (const auto& result : std::span(results).first(static_cast<size_t>(found)))
    if (result.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(result.algo);
  return algorithms;
}

/// Whether the algorithm cuts the sum over k into parts, whose number is its own affair.
bool splits_sums(const cublasLtMatmulAlgo_t& algorithm) {
  int32_t parts = 1;
  uint32_t scheme = 0;
  size_t written = 0;
  cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts, sizeof parts, &written);
  cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, sizeof scheme,
                                       &written);
  return parts > 1 || scheme != CUBLASLT_REDUCTION_SCHEME_NONE;
}

/// Two copies of c beside the plan, for a moment.
class Copies {
 public:
  explicit Copies(const Product& p) : bytes_(p.c_ld * p.n * (p.wide ? 4 : 2)) {
    if (cudaMalloc(&memory_, static_cast<size_t>(2 * bytes_)) != cudaSuccess) memory_ = nullptr;
    cudaGetLastError();
  }
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;
  ~Copies() { cudaFree(memory_); }

  explicit operator bool() const { return memory_ != nullptr; }
  void* first() const { return memory_; }
  void* second() const { return static_cast<char*>(memory_) + bytes_; }
  void clear(void* copy) const {
    check(cudaMemsetAsync(copy, 0, static_cast<size_t>(bytes_), current_stream()), "clearing a product");
  }
  bool are_equal() const { return at::equal(whole(first()), whole(second())); }
  bool first_is_zero() const { return whole(first()).count_nonzero().item<int64_t>() == 0; }

 private:
  at::Tensor whole(void* copy) const {
    const c10::Device device(c10::kCUDA, c10::cuda::current_device());
    return at::for_blob(copy, {bytes_ / 2})
        .options(at::TensorOptions().dtype(at::kShort).device(device))
        .target_device(device)
        .make_tensor();
  }

  int64_t bytes_;
  void* memory_ = nullptr;
};

class Events {
 public:
  Events() {
    check(cudaEventCreate(&begin_), "an event");
    check(cudaEventCreate(&end_), "an event");
  }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;
  ~Events() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  template <class Body>
  float milliseconds(const Body& body) const {
    check(cudaEventRecord(begin_, current_stream()), "an event");
    body();
    check(cudaEventRecord(end_, current_stream()), "an event");
    check(cudaEventSynchronize(end_), "products that are timed");
    float time = 0;
    check(cudaEventElapsedTime(&time, begin_, end_), "an event");
    return time;
  }

 private:
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

/// The fastest algorithm that makes the bits of the first one; nothing if the operands are zeros, of which all make the
/// same.
std::optional<cublasLtMatmulAlgo_t> fastest(const Product& p, const Description& d,
                                            const std::vector<cublasLtMatmulAlgo_t>& all, const void* a,
                                            const void* b) {
  const Copies copies(p);
  if (!copies) return all.front();
  const Events events;
  const auto time = [&](const cublasLtMatmulAlgo_t& algorithm) {
    return events.milliseconds([&] {
      for (int i = 0; i < kTimedRuns; ++i) run(p, d, d.operation, algorithm, a, b, copies.second(), copies.second());
    });
  };
  copies.clear(copies.first());
  if (!run(p, d, d.operation, all.front(), a, b, copies.first(), copies.first())) return all.front();
  if (copies.first_is_zero()) return std::nullopt;
  run(p, d, d.operation, all.front(), a, b, copies.second(), copies.second());
  float least = time(all.front()) * kFaster;
  size_t best = 0;
  for (size_t i = 1; i < all.size(); ++i) {
    if (splits_sums(all[i])) continue;
    copies.clear(copies.second());
    if (!run(p, d, d.operation, all[i], a, b, copies.second(), copies.second()) || !copies.are_equal()) continue;
    if (const float taken = time(all[i]); taken < least) least = taken, best = i;
  }
  return all[best];
}

Chosen choose(const Product& p, const void* a, const void* b, const Scales& scales) {
  Chosen chosen{std::make_shared<const Description>(p, scales), {}};
  const std::vector<cublasLtMatmulAlgo_t> all = proposals(*chosen.description);
  if (all.empty()) return chosen;
  const bool large = 2.0 * double(p.m) * double(p.n) * double(p.k) >= kLarge;
  chosen.algorithm = all.front();
  if (!large || all.size() == 1 || splits_sums(all.front())) return chosen;
  const auto found = fastest(p, *chosen.description, all, a, b);
  chosen.is_final = found.has_value();
  if (found) chosen.algorithm = found;
  return chosen;
}

/// The choice for a product, made by the first thread that asks.
Chosen chosen_for(const Product& p, const void* a, const void* b, const Scales& scales) {
  static std::mutex mutex;
  static auto& all = *new std::map<std::pair<int, Product>, Chosen>;  // outlives every static destructor
  const std::lock_guard lock(mutex);
  const std::pair key(static_cast<int>(c10::cuda::current_device()), p);
  const auto found = all.find(key);
  if (found != all.end()) return found->second;
  Chosen chosen = choose(p, a, b, scales);
  if (chosen.is_final) all.emplace(key, chosen);
  return chosen;
}

bool aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

}  // namespace

bool tuned_product(const Product& p, const void* a, const void* b, const void* addend, void* c, const Scales& scales) {
  // The proposals are for such addresses.
  if (!aligned(a) || !aligned(b) || !aligned(addend) || !aligned(c)) return false;
  const Chosen chosen = chosen_for(p, a, b, scales);
  if (!chosen.algorithm) return false;
  if (scales.a == nullptr)
    return run(p, *chosen.description, chosen.description->operation, *chosen.algorithm, a, b, addend, c);
  Operation operation;  // ranks that share the GPU have other scales
  describe(operation, p, scales);
  return run(p, *chosen.description, operation, *chosen.algorithm, a, b, addend, c);
}

}  // namespace trireme::ops::cuda
