#include "fixtures.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <random>

#include "thread_ranks.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/checkpoint/load.h"

namespace trireme::checkpoint {

namespace fs = std::filesystem;

ScratchFolder::ScratchFolder() {
  std::string pattern = (fs::temp_directory_path() / "trireme-checkpoint-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
  path_ = pattern;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::vector<TensorSpec> sample_model(int64_t scale) {
  return {{.name = "model.embed_tokens.weight", .shape = {37 * scale, 24}, .dtype = Dtype::bf16},
          {.name = "model.layers.0.mlp.up_proj.weight", .shape = {65, 24}, .dtype = Dtype::bf16},
          {.name = "model.layers.0.scale", .shape = {}, .dtype = Dtype::f32},
          {.name = "model.layers.1.mlp.up_proj.weight", .shape = {7, 3, 5}, .dtype = Dtype::f16},
          {.name = "model.layers.1.none", .shape = {0, 4}, .dtype = Dtype::f32},
          {.name = "model.norm.weight", .shape = {23}, .dtype = Dtype::f32}};
}

float sample_value(const std::string& tensor, int64_t element, int64_t step) {
  uint64_t x = std::hash<std::string>()(tensor) + 0x9e3779b97f4a7c15u * static_cast<uint64_t>(element + 1) +
               static_cast<uint64_t>(step) * 0x2545f4914f6cdd1du;
  x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
  return static_cast<float>(static_cast<int>((x >> 33) % 255) - 127) / 16.0f;
}

std::vector<TensorSpec> sample_tensors(int64_t scale) {
  std::vector<TensorSpec> tensors = sample_model(scale);
  const std::vector<TensorSpec> state = state_tensors(sample_model(scale), kAdamW);
  tensors.insert(tensors.end(), state.begin(), state.end());
  return tensors;
}

SamplePieces::SamplePieces(const std::vector<TensorSpec>& tensors, int64_t step, int rank, int num_ranks,
                           uint64_t seed) {
  std::mt19937_64 random(seed);  // the same cuts on every rank
  for (const TensorSpec& tensor : tensors) {
    const int64_t elements = num_elements(tensor.shape);
    for (int64_t begin = 0; begin < elements;) {
      const int64_t end =
          std::min(elements, begin + 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(elements)));
      if (static_cast<int>(random() % static_cast<uint64_t>(num_ranks)) == rank) {
        std::vector<float>& values = memory.emplace_back();
        for (int64_t i = begin; i < end; ++i) values.push_back(sample_value(tensor.name, i, step));
        pieces.push_back(
            {.tensor = tensor.name, .begin = begin, .end = end, .data = values.data(), .dtype = Dtype::f32});
      }
      begin = end;
    }
  }
}

SaveRequest sample_request(const fs::path& out_dir, int64_t step, const SamplePieces& pieces, int64_t scale) {
  return {.out_dir = out_dir,
          .step = step,
          .model = sample_model(scale),
          .optimizer = state_tensors(sample_model(scale), kAdamW),
          .pieces = pieces.pieces,
          .config_json = R"({"model_type": "plain"})",
          .generation_config_json = R"({"bos_token_id": 1})",
          .extra_files = {{"settings.yaml", "seed: 42\n"}},
          .state_json = R"({"step": )" + std::to_string(step) + "}"};
}

fs::path save_sample(const fs::path& out_dir, int64_t step, int num_ranks, int64_t scale,
                     const std::function<void(int rank, SaveRequest&)>& change) {
  std::vector<std::string> errors(static_cast<size_t>(num_ranks));
  fs::path result;
  run_ranks(num_ranks, [&](comm::Communicator& world) {
    const SamplePieces pieces(sample_tensors(scale), step, world.rank(), num_ranks,
                              static_cast<uint64_t>(7 * num_ranks + step));
    SaveRequest request = sample_request(out_dir, step, pieces, scale);
    if (change) change(world.rank(), request);
    try {
      const SaveResult saved = save_checkpoint(request, world);
      if (world.rank() == 0) result = saved.path;
    } catch (const Error& error) {
      errors[static_cast<size_t>(world.rank())] = error.what();
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, errors[0]) << "every rank must fail alike";
  if (!errors[0].empty()) throw CheckpointError(errors[0], out_dir.string());
  return result;
}

int64_t count_wrong_elements(const fs::path& path, int64_t step, int64_t scale) {
  const Checkpoint checkpoint = open_checkpoint(path);
  int64_t wrong = 0;
  for (const TensorSpec& tensor : sample_tensors(scale)) {
    std::vector<double> values(static_cast<size_t>(num_elements(tensor.shape)));
    const PieceRequest request{.tensor = tensor.name,
                               .begin = 0,
                               .end = static_cast<int64_t>(values.size()),
                               .data = values.data(),
                               .dtype = Dtype::f64};
    read_pieces(checkpoint, {&request, 1});
    for (size_t i = 0; i < values.size(); ++i) {
      wrong += values[i] != sample_value(tensor.name, static_cast<int64_t>(i), step);
    }
  }
  return wrong;
}

std::map<std::string, std::string> folder_contents(const fs::path& folder) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : fs::directory_iterator(folder)) {
    contents[entry.path().filename().string()] = base::read_file(entry.path());
  }
  return contents;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

void overwrite(const fs::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

bool slow_tests() {
  const char* value = std::getenv("TRIREME_SLOW");
  return value != nullptr && std::string(value) == "1";
}

}  // namespace trireme::checkpoint
