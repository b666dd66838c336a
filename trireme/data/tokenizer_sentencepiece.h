// SentencePiece's tokenizer.model as a tokenizer: its normaliser (compiled map, white space), BPE or Unigram, its way
// of putting text together again. Ids are the positions of the pieces.
#pragma once

#include <string>
#include <string_view>

#include "trireme/data/tokenizer_pipeline.h"

namespace trireme::data {

/// The parts that `bytes`, the contents of `path`, describes.
/// Errors    UsageError naming the file and what is wrong with it; word and character models are not known
TokenizerParts parse_sentencepiece_model(std::string_view bytes, const std::string& path);

}  // namespace trireme::data
