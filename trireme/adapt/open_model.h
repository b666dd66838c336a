// Opens what a user names as a model: a model's folder or a checkpoint; one of these with an adapter; or an adapter
// alone, which leads to its base.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trireme/adapt/adapter_folder.h"
#include "trireme/base/block_format.h"
#include "trireme/checkpoint/load.h"

namespace trireme::adapt {

struct ModelPlace {
  std::filesystem::path model;         ///< a folder, or a folder of checkpoints (the newest good one counts)
  std::filesystem::path adapter = {};  ///< merged into it; empty: none
  std::filesystem::path base = {};     ///< if `model` is an adapter: where its base lies now; empty: where it lay
  base::BlockFormat quantize = {};     ///< of the base: an adapter is merged into the values of its codes
};

/// A model's folder with the matrices of all blocks in this format.
/// Errors    UsageError for models that cannot be kept so, or are in another format already
checkpoint::Checkpoint in_format(checkpoint::Checkpoint folder, base::BlockFormat format);

/// The folder of the model's weights, whose tokenizer counts too: the base of an adapter, else the checkpoint itself.
/// Errors    UsageError: no such folder, a base that is not there, `base` without an adapter
std::filesystem::path weights_of(const ModelPlace& place);

/// The folder of the adapter that a place names, in `adapter` or as the model itself; empty: none.
/// Errors    UsageError as weights_of(); an adapter for an adapter
std::filesystem::path adapter_of(const ModelPlace& place);

/// Errors    those of weights_of(), open_checkpoint() and with_adapter()
checkpoint::Checkpoint open_model(const ModelPlace& place, std::vector<std::string>* notes = nullptr);

/// A base in blocks of few bits, and an adapter that is computed beside it, y = W x + s B (A x): merged, the matrices
/// would have all their bits.
struct Beside {
  checkpoint::Checkpoint base;
  AdapterFolder adapter;
  FittedAdapter fitted;
};
/// Nothing if the place has no adapter, or if it is merged: into a base with all its bits; if it has magnitudes (DoRA),
/// biases, whole modules, or changes the embedding or the head.
/// Errors    those of open_model()
std::optional<Beside> open_beside(const ModelPlace& place);

/// The folder of an adapter's base (open_base): `given`; if it is empty the adapter's own folder, if that holds a copy,
/// else the recorded one. Of a folder of checkpoints, the newest good one.
/// Errors    UsageError with the way out: there is no such folder, none is recorded, it is itself an adapter
std::filesystem::path base_of(const AdapterFolder& adapter, const std::filesystem::path& given);

}  // namespace trireme::adapt
