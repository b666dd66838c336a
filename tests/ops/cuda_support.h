// Operations on a GPU are tested against the same operations on the CPU. Each test skips itself on a machine without
// one, so that every build compiles it.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "trireme/base/shared_library.h"
#include "trireme/ops/cuda/kernels.h"

namespace trireme::ops {

/// Test fixture: skips without a GPU, and opens the kernels before ATen is asked about CUDA.
class Cuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!base::gpu_present()) GTEST_SKIP() << "this machine has no GPU";
    cuda_kernels();
  }
  void TearDown() override {
    if (base::gpu_present()) cuda_kernels().synchronize();
  }
};

inline at::Tensor on_gpu(const at::Tensor& tensor) { return tensor.defined() ? tensor.to(at::kCUDA) : tensor; }

/// Normal values on the CPU from a seed, rounded to `dtype`.
inline at::Tensor random(at::IntArrayRef shape, at::ScalarType dtype, int64_t seed) {
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(seed));
  return at::randn(shape, generator, at::TensorOptions().dtype(at::kDouble)).to(dtype);
}

/// ||got - want|| / ||want||, in float64 on the CPU; NaN anywhere gives NaN.
inline double relative_error(const at::Tensor& got, const at::Tensor& want) {
  const at::Tensor g = got.to(at::kCPU).to(at::kDouble), w = want.to(at::kCPU).to(at::kDouble);
  const double norm = w.norm().item<double>(), difference = (g - w).norm().item<double>();
  return norm == 0 ? difference : difference / norm;
}

/// A bound for relative_error between two results of the compute dtype, each rounded once from the wide type.
inline double bound_of(at::ScalarType dtype) {
  return dtype == at::kDouble ? 1e-12 : dtype == at::kFloat ? 2e-6 : 6e-3;
}

}  // namespace trireme::ops
