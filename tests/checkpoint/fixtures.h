// A small model with awkward shapes, its values as a function of (tensor, element, step), and temporary folders.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/checkpoint/save.h"

namespace trireme::checkpoint {

/// A folder below the system's temporary one, gone at the end of the test.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

/// Parameters in bf16 and fp32 with one scalar, one empty and some odd sizes; `scale` makes them larger.
std::vector<TensorSpec> sample_model(int64_t scale = 1);

/// The value of an element: exact in bf16, so that conversions lose nothing.
float sample_value(const std::string& tensor, int64_t element, int64_t step);

/// fp32 memory for ragged pieces of all tensors: the flat elements of everything are cut at seeded places and
/// dealt to `num_ranks` ranks.
struct SamplePieces {
  SamplePieces(const std::vector<TensorSpec>& tensors, int64_t step, int rank, int num_ranks, uint64_t seed);
  std::vector<Piece> pieces;
  std::vector<std::vector<float>> memory;
};

/// What AdamW keeps.
inline const std::vector<std::string> kAdamW = {"exp_avg", "exp_avg_sq"};

/// The request of one rank for the sample model with AdamW state; `pieces` must outlive it.
SaveRequest sample_request(const std::filesystem::path& out_dir, int64_t step, const SamplePieces& pieces,
                           int64_t scale = 1);
std::vector<TensorSpec> sample_tensors(int64_t scale = 1);

/// Saves the sample model on `num_ranks` thread ranks; `change` may alter each rank's request.
/// @returns  the folder; throws the error of rank 0 after checking that every rank got the same
std::filesystem::path save_sample(const std::filesystem::path& out_dir, int64_t step, int num_ranks, int64_t scale = 1,
                                  const std::function<void(int rank, SaveRequest&)>& change = {});

/// How many elements of the whole checkpoint differ from the sample of `step`, read in one piece per tensor.
int64_t count_wrong_elements(const std::filesystem::path& checkpoint, int64_t step, int64_t scale = 1);

/// Name -> bytes of every file in a folder.
std::map<std::string, std::string> folder_contents(const std::filesystem::path& folder);

/// Names in a folder, sorted, temporary ones too.
std::vector<std::string> names_in(const std::filesystem::path& folder);

/// The text of the Expected that `work` throws, or "no error".
template <typename Expected = CheckpointError>
std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Expected& error) {
    return error.what();
  }
  return "no error";
}

void overwrite(const std::filesystem::path& file, const std::string& bytes);

/// True when TRIREME_SLOW=1 asks for the full counts of campaigns.
bool slow_tests();

}  // namespace trireme::checkpoint
