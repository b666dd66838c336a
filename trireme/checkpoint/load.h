// Reads a checkpoint: each rank reads only the element ranges that it needs, and verifies what it reads.
//
//     if (auto path = find_latest("out/run")) {                      // good.h
//       const Checkpoint checkpoint = open_checkpoint(*path);        // headers and small files
//       check_tensors(checkpoint, expected);
//       agree(world, [&] { read_pieces(checkpoint, pieces); });      // all ranks succeed, or all throw
//     }
//
// The pieces may differ from those of the save: any mesh loads what any other mesh saved. A plain Hugging Face folder
// (no manifest) is read in the same way, without verification.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/checkpoint/block_file.h"
#include "trireme/checkpoint/folders.h"
#include "trireme/checkpoint/good.h"
#include "trireme/checkpoint/safetensors.h"

namespace trireme::checkpoint {

/// A tensor of a checkpoint, and its place in the files.
struct StoredTensor {
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> shape;
  int64_t elements = 0;
  int file = 0;       ///< index in Checkpoint::files
  int64_t begin = 0;  ///< first byte in the file
};

/// Changes values of tensors while they are read, for example to those with an adapter merged. Whoever reads a
/// checkpoint gets the changed values.
class PieceChange {
 public:
  virtual ~PieceChange() = default;
  virtual bool changes(const std::string& tensor) const = 0;
  /// Changes elements [begin, end) of a tensor. `values` holds the file's, in `dtype`, which is f32 or f64.
  virtual void apply(const std::string& tensor, int64_t begin, int64_t end, void* values, Dtype dtype) const = 0;
};

class QuantizedTensors;  // quantized_tensors.h

/// An open checkpoint; copies share its files and the record of verified blocks.
struct Checkpoint {
  std::filesystem::path path;
  bool has_manifest = false;  ///< false: a plain Hugging Face folder, nothing is verified
  int64_t step = 0;           ///< 0 without a manifest
  std::string state_json;     ///< trireme_state.json as saved; "{}" without one
  Manifest manifest;          ///< empty without one
  std::map<std::string, StoredTensor> tensors;
  std::vector<std::shared_ptr<const BlockFile>> files;
  std::shared_ptr<const PieceChange> change = {};  ///< null: the values are those of the files
  std::shared_ptr<const QuantizedTensors> quantized = {};  ///< tensors whose values are those of codes; null: none
  std::map<std::string, std::string> texts = {};   ///< small files that read_text() gives instead of the folder's

  bool has_tensor(const std::string& name) const { return tensors.contains(name); }
  /// Errors    CheckpointError naming the nearest spelling if there is no such tensor
  const StoredTensor& tensor(const std::string& name) const;
};

/// A flat, row-major element range of one tensor and the memory that receives it.
struct PieceRequest {
  std::string tensor;
  int64_t begin = 0;  ///< first element
  int64_t end = 0;    ///< one past the last
  void* data = nullptr;
  Dtype dtype = Dtype::f32;  ///< of `data`; the file's dtype is converted to it
};

/// Opens a folder: reads its manifest, the small files that it names and the tensors' headers, all verified.
///
/// Errors    DamagedError: a damaged or missing manifest, a missing or truncated file, a small file or a header that
///           has changed since the save; UnreadableError; CheckpointError: no such folder, a header that breaks a rule
///           of the format
Checkpoint open_checkpoint(const std::filesystem::path& path, Advice advice = Advice::name_older);

/// Opens files of a folder that need not be a checkpoint, without a manifest.
/// Errors    as open_checkpoint()
Checkpoint open_files(const std::filesystem::path& folder, std::span<const std::string> names);

/// Refuses a checkpoint of another model: every tensor must exist with its shape (in any float dtype).
/// `way_out` ends the message.
/// Errors    CheckpointError naming the first wrong tensor and how many there are
void check_tensors(const Checkpoint& checkpoint, std::span<const TensorSpec> expected,
                   std::string_view way_out = "its config.json, or a setting under model., belongs to other weights");

/// Whether reads go through the page cache. `use` if other ranks of the host read the same data.
enum class PageCache { use, bypass };

/// Fills every request's memory. Local to this rank: wrap it in agree() (agree.h) if other ranks wait for it.
///
/// Cost      reads each needed block once, in the order of the files; a thread reads 4 MiB ahead; 8 MiB of buffers
/// Numerics  floats round to nearest even when the memory's dtype is narrower. Changed tensors (PieceChange) are read
///           and changed as f64 if the file's dtype or the memory's is, else as f32, and then rounded once
/// Errors    CheckpointError: unknown tensor, range outside it, dtypes that do not convert, damaged block.
///           Requests are checked before anything is read; memory is undefined after damage
void read_pieces(const Checkpoint& checkpoint, std::span<const PieceRequest> requests,
                 PageCache cache = PageCache::use);

/// The same for one piece, without a thread: for callers that read a tensor in small steps.
///
/// Cost      reads unverified blocks whole; one conversion buffer of 1 MiB
void read_piece(const Checkpoint& checkpoint, const PieceRequest& request);

/// A small file of the folder ("config.json"), verified. Errors    CheckpointError when missing or damaged
std::string read_text(const Checkpoint& checkpoint, const std::string& name);

}  // namespace trireme::checkpoint
