// Writes a checkpoint in parallel: every rank writes its own byte ranges of the final Hugging Face files.
//
// Nothing is gathered or converted afterwards: layout.h says where every element goes. The folder is written as
// `.tmp-step-...`. It gets its name by one rename, after every rank has flushed its bytes and the manifest has all
// hashes. Until then, and after a failure on any rank, the older checkpoints are unchanged. save_job.h does the same in
// the background of a training loop.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "trireme/checkpoint/disk.h"
#include "trireme/checkpoint/layout.h"
#include "trireme/comm/communicator.h"

namespace trireme::checkpoint {

/// A flat, row-major element range of one tensor that this rank writes. Its values are in memory or come from `fill`.
struct Piece {
  std::string tensor;
  int64_t begin = 0;  ///< first element
  int64_t end = 0;  ///< one past the last
  const void* data = nullptr;  ///< element `begin`; host memory, unchanged until save_checkpoint returns
  Dtype dtype = Dtype::f32;  ///< of `data`; converted to the file's dtype while writing
  /// Instead of `data`: writes elements [begin, end) of the tensor in the file's dtype; at most 1 MiB a call, in order.
  std::function<void(int64_t begin, int64_t end, void* to)> fill = {};
};

struct SaveProgress {
  const char* phase = "";  ///< "write" or "checksum"
  int64_t done_bytes = 0;  ///< of this rank's share in this phase
  int64_t total_bytes = 0;
};

/// All fields except `pieces`, `progress` and the texts must be equal on all ranks. Rank 0's texts are used.
struct SaveRequest {
  std::filesystem::path out_dir;
  std::string name;  ///< of the folder in out_dir; empty: step-00000800 for step 800
  int64_t step = 0;
  std::vector<TensorSpec> model;  ///< goes to model*.safetensors
  std::string stem = "model";  ///< of the names of these files; "adapter_model" for adapters alone
  /// A second model in the same folder, an adapter's base: goes to `base_files` (tensor -> file).
  std::vector<TensorSpec> base = {};
  std::map<std::string, std::string> base_files = {};
  std::string base_index_json = {};
  std::vector<TensorSpec> optimizer;  ///< goes to optimizer-*.safetensors; may be empty
  std::vector<Piece> pieces;  ///< the pieces of all ranks hold every element of every tensor exactly once
  std::string config_json;  ///< empty: no such file
  std::string generation_config_json;  ///< empty: no such file
  std::map<std::string, std::string> extra_files;  ///< name -> bytes: tokenizer.json, settings.yaml, ...
  std::string state_json = "{}";  ///< trireme_state.json: step, samples, seeds, fingerprint, ...; empty: no such file
  int64_t max_shard_bytes = kDefaultShardBytes;
  std::map<std::string, std::string> files;  ///< model tensor -> file; empty: divided by max_shard_bytes
  std::string index_json;  ///< index of `files`; replaced if it is empty or does not match them
  /// Why the training has diverged, if the caller knows. The values of the pieces may show divergence too (extreme.h).
  /// In both cases the checkpoint is marked as ruined (good.h).
  std::string ruined = {};
  bool may_replace = true;  ///< a folder of this name; false: an error, if another process makes one meanwhile
  int keep_last = 0;  ///< how many good checkpoints stay; 0 keeps all
  /// Folders and files that the run was started with. A checkpoint that is or contains one of them is never deleted.
  /// Paths that do not exist are ignored.
  std::vector<std::filesystem::path> protected_paths = {};
  std::string elsewhere = kOtherOutDir;  ///< what a full disk's error advises (disk.h)
  /// False: a missing out_dir is an error, because it existed when the run began.
  bool create_out_dir = true;
  /// Called about once a second if the save lasts longer than `progress_after`. An exception from it ends the save like
  /// any failure.
  std::function<void(const SaveProgress&)> progress;
  std::chrono::milliseconds progress_after{2000};
};

struct SaveResult {
  std::filesystem::path path;  ///< out_dir/step-00000800
  int64_t bytes = 0;  ///< of all files; the manifest counts on rank 0 only, which writes it
  std::chrono::duration<double> seconds{};  ///< from begin to end
  std::chrono::duration<double> work_seconds{};  ///< of this rank's work; less than `seconds` in the background
  std::string ruined;  ///< why it is marked as ruined; empty: it is not; on every rank
  std::vector<std::filesystem::path> removed;  ///< older checkpoints deleted; on rank 0
  std::vector<std::string> warnings;  ///< older checkpoints that could not be deleted; on rank 0
};

/// Saves one checkpoint; returns when it is on the disk under its name.
///
/// Ordering  every rank of `world` must call; `world` must take CPU tensors; all ranks must see the same out_dir
/// Cost      each rank writes its pieces (buffer of 1 MiB if it converts) and hashes them meanwhile. One rank reads
///           back each block that several ranks fill. Ranks exchange 24 bytes a piece and 16 a block
/// Errors    CheckpointError, the same on every rank: pieces that miss or repeat elements, ranks that disagree about
///           the tensors, a full disk (bytes needed and free), any error of the file system. RankError likewise for
///           all other failures (agree.h). The unfinished folder is then removed and older checkpoints are untouched.
///           CommError if a rank is lost
SaveResult save_checkpoint(const SaveRequest& request, comm::Communicator& world);

}  // namespace trireme::checkpoint
