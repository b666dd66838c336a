// ModelSource: how a run's model is kept in files, taken from the folder it came from, so that it goes back as it
// came: names, dtypes and files of its tensors, its index and the files beside it (tokenizer, generation config).
#pragma once

#include <map>
#include <string>

#include "trireme/checkpoint/load.h"
#include "trireme/model/model.h"

namespace trireme::train {

struct ModelSource {
  struct Stored {
    checkpoint::Dtype dtype = checkpoint::Dtype::f32;
    std::string file;
  };
  std::map<std::string, Stored> tensors;          ///< by the folder's names; empty: there was no folder
  std::string index_json;                         ///< "" where all tensors are in one file
  std::map<std::string, std::string> side_files;  ///< name -> bytes
  std::string strip, add;  ///< our names begin with `strip` where the folder's begin with `add`
  bool is_part = false;    ///< the folder holds another half beside the model: it is not saved as it came

  /// The folder's name of a tensor.
  std::string name_of(const std::string& ours) const;
};

/// Whoever loads a folder comes by here first: it holds the model's tensors, each in its shape, and no other ones.
/// Side files are read on rank 0's behalf by whoever asks (`with_side_files`).
///
/// Cost      headers only; where the model's head is tied and the folder has one all the same, both matrices until
///           they differ
/// Errors    CheckpointError naming the first tensor that is missing, has another shape, or is not used by the model:
///           it would be lost, and the model computes something else
ModelSource describe_source(const checkpoint::Checkpoint& folder, const model::Model& model, bool with_side_files);

}  // namespace trireme::train
