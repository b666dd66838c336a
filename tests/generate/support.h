// Texts of some requests by engines on threads as ranks.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/engine/support.h"
#include "trireme/generate/generator.h"

namespace trireme::generate {

struct Job {
  std::string model = "llama";
  model::Precision precision = engine::kFloat32;
  comm::MeshSizes mesh = {.shard = 1};
  plan::Strategy strategy = plan::Strategy::no_shard;
  Room room = {.texts = 6, .tokens = 32, .cache_tokens = 1024};
  int threads = 1;
  bool poison = false;
  int64_t positions = 200;  ///< of the model: more than a page
  base::BlockFormat head = base::BlockFormat::none;  ///< in which its matrix is kept
  bool trains = false;  ///< the plan has the lists of training, too, and matrices are not packed
  int ranks() const { return mesh.pp * mesh.replicate * mesh.shard * mesh.cp * mesh.tp; }
};

struct Answer {
  std::vector<int64_t> tokens;
  std::vector<double> logprobs;
  bool operator==(const Answer&) const = default;
};

model::ModelConfig config_of(const Job& job);

/// Success if both are equal. On a processor where LibTorch multiplies (ops::gemm_kernels has none of ours), the bits
/// of a product depend on its number of rows: there log-probabilities may differ by rounding, up to the first token
/// that is drawn differently, and no more than a tenth of the answers may have such a token.
testing::AssertionResult same(const std::vector<Answer>& have, const std::vector<Answer>& want,
                              const model::Precision& precision);

/// What the requests become, in their order; they are added in that order, each on one data rank.
std::vector<Answer> run(const Job& job, const std::vector<Request>& requests);

}  // namespace trireme::generate
