// ModelSource: how the files of a run's model look in the folder that it was loaded from, so that it is saved in the
// same way: names, dtypes and files of its tensors, its index, and the files beside it (tokenizer, generation config).
#pragma once

#include <map>
#include <set>
#include <string>

#include "trireme/checkpoint/load.h"
#include "trireme/checkpoint/naming.h"
#include "trireme/model/model.h"

namespace trireme::train {

struct ModelSource {
  struct Stored {
    checkpoint::Dtype dtype = checkpoint::Dtype::f32;
    std::string file;
    bool has_master = false;  ///< beside it lies NAME.master, from which a run goes on
  };
  std::map<std::string, Stored> tensors;          ///< by the names in the folder; empty: there was no folder
  std::string index_json;                         ///< "" if all tensors are in one file
  std::map<std::string, std::string> side_files;  ///< name -> bytes
  checkpoint::Naming naming;  ///< if it is_part, the model is not saved in the same way
  std::string head;  ///< our name of an untied head's matrix
  std::set<std::string> fresh;  ///< our names of parameters of a classification head that the folder lacks
  std::string tied;  ///< our name of the matrix that embedding and head share in the folder; "": they have one each

  /// The folder's name of a tensor. A head that training has untied is read from the matrix that it shares there.
  std::string name_of(const std::string& ours) const {
    return naming.name_of(!tied.empty() && ours == head ? tied : ours);
  }
};

struct SourceOptions {
  bool side_files = false;     ///< reads the files beside the tensors
  bool may_lack_head = false;  ///< a classification head, or one for these labels, may be missing: training makes it
};

/// Called before a folder is loaded. Checks that it holds the model's tensors, in their shapes, and no others. A model
/// with labels leaves out a language model's head. Adapters are not expected in it.
///
/// Cost      reads headers only; if the model's head is tied but the folder has a head too, also both matrices, up to
///           their first difference
/// Errors    CheckpointError naming the first tensor that is missing, has another shape, or is not used by the model
///           (it would be lost, or the model would compute something else)
ModelSource describe_source(const checkpoint::Checkpoint& folder, const model::Model& model,
                            const SourceOptions& options = {});

}  // namespace trireme::train
