// Writing a checkpoint in parallel: every rank writes its own byte ranges of the final Hugging Face files.
//
// Nothing is gathered and nothing is converted afterwards: layout.h says where every element goes. The folder
// is built as `.tmp-step-...` and appears under its name by one rename, after every rank has flushed its bytes
// and all of them are hashed into the manifest. Until then older checkpoints are the newest ones; after any
// failure, on whichever rank, they still are. save_job.h does the same beside a training loop.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "trireme/checkpoint/layout.h"
#include "trireme/comm/communicator.h"

namespace trireme::checkpoint {

/// A flat, row-major element range of one tensor that this rank holds, in memory or through a function.
struct Piece {
  std::string tensor;
  int64_t begin = 0;  ///< first element
  int64_t end = 0;    ///< one past the last
  const void* data = nullptr;  ///< element `begin`; host memory, unchanged until save_checkpoint returns
  Dtype dtype = Dtype::f32;    ///< of the memory; converted to the file's while writing
  /// Instead of `data`: writes elements [begin, end) of the tensor in the file's dtype; at most 1 MiB a call, in order.
  std::function<void(int64_t begin, int64_t end, void* to)> fill = {};
};

struct SaveProgress {
  const char* phase = "";  ///< "write" or "checksum"
  int64_t done_bytes = 0;  ///< of this rank's share in this phase
  int64_t total_bytes = 0;
};

/// Everything but `pieces`, `progress` and the texts must be equal on all ranks; texts are taken from rank 0.
struct SaveRequest {
  std::filesystem::path out_dir;
  std::string name;  ///< of the folder in it; empty: step-00000800 for step 800
  int64_t step = 0;
  std::vector<TensorSpec> model;  ///< goes to model*.safetensors
  std::vector<TensorSpec> optimizer;  ///< goes to optimizer-*.safetensors; may be empty
  std::vector<Piece> pieces;  ///< over all ranks, every element of every tensor exactly once
  std::string config_json;
  std::string generation_config_json;  ///< empty: no such file
  std::map<std::string, std::string> extra_files;  ///< name -> bytes: tokenizer.json, settings.yaml, ...
  std::string state_json = "{}";  ///< trireme_state.json: step, samples, seeds, fingerprint, ...; empty: no such file
  int64_t max_shard_bytes = kDefaultShardBytes;
  std::map<std::string, std::string> files;  ///< of the model's tensors: name -> file; empty: by max_shard_bytes
  std::string index_json;  ///< of these files; made anew where it is empty or names others
  /// Why the training that is saved has gone wrong, if that is known; what the pieces hold says it too (extreme.h). The
  /// checkpoint is then marked as ruined (good.h).
  std::string ruined = {};
  int keep_last = 0;  ///< how many good checkpoints stay; 0 keeps all
  /// Folders and files that the run was started with: a checkpoint that is or holds one of them stays, whatever
  /// keep_last says. Those that do not exist are ignored.
  std::vector<std::filesystem::path> protected_paths = {};
  /// False: an out_dir that is not there is an error. It was there when the run began, so a disk has gone.
  bool create_out_dir = true;
  /// Called about once a second during a save that lasts longer than `progress_after`; what it throws ends the
  /// save as any failure does.
  std::function<void(const SaveProgress&)> progress;
  std::chrono::milliseconds progress_after{2000};
};

struct SaveResult {
  std::filesystem::path path;  ///< out_dir/step-00000800
  int64_t bytes = 0;  ///< all files
  std::chrono::duration<double> seconds{};  ///< from begin to end
  std::chrono::duration<double> work_seconds{};  ///< in which this rank worked on it; less, beside training
  std::string ruined;  ///< why it is marked as ruined; on every rank; empty: it is not
  std::vector<std::filesystem::path> removed;  ///< older checkpoints deleted; on rank 0
  std::vector<std::string> warnings;  ///< older checkpoints that could not be deleted; on rank 0
};

/// Saves one checkpoint; returns when it is on the disk under its name.
///
/// Ordering  every rank of `world` must call; `world` must take CPU tensors, out_dir must be one file system
///           seen by all ranks
/// Cost      each rank writes its pieces (buffer of 1 MiB when it converts) and hashes them on the way; blocks that
///           several ranks fill are read back, each by one of them. Ranks exchange 24 bytes a piece and 16 a block
/// Errors    CheckpointError, the same on every rank: pieces that miss or repeat elements, ranks that disagree
///           about the tensors, a full disk (bytes needed and free), any refusal of the system. The unfinished
///           folder is then gone and older checkpoints are untouched. CommError when a rank is lost
SaveResult save_checkpoint(const SaveRequest& request, comm::Communicator& world);

}  // namespace trireme::checkpoint
