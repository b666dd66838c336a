// Texts of some requests by engines on threads as ranks.
#pragma once

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
  bool trains = false;  ///< the plan has the lists of training, too, and matrices are not packed
  int ranks() const { return mesh.pp * mesh.replicate * mesh.shard * mesh.cp * mesh.tp; }
};

struct Answer {
  std::vector<int64_t> tokens;
  std::vector<double> logprobs;
  bool operator==(const Answer&) const = default;
};

model::ModelConfig config_of(const Job& job);

/// What the requests become, in their order; they are added in that order, each on one data rank.
std::vector<Answer> run(const Job& job, const std::vector<Request>& requests);

}  // namespace trireme::generate
