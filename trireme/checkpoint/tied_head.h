// A head beside an embedding that the model shares with it.
#pragma once

#include <string>

#include "trireme/checkpoint/tensor_source.h"

namespace trireme::checkpoint {

/// Checks a source whose model takes the embedding for its head, too. Some programs save the embedding twice. A head
/// with any other values would be lost.
///
/// embedding  the embedding's name in the source
/// path       for messages
/// Cost       reads both matrices where there are two
/// Errors     CheckpointError naming the head
void check_tied_head(const TensorSource& source, const std::string& embedding, const std::string& path);

}  // namespace trireme::checkpoint
