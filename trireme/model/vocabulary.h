// The vocabulary over tensor-parallel ranks: each holds an equal part of the rows of the embedding and of the head.
// Where the parts do not divide the vocabulary, the last reach beyond it; the rows there are zero and stay so.
#pragma once

#include "trireme/model/config.h"
#include "trireme/model/unit.h"

namespace trireme::model {

struct VocabularyPart {
  int64_t first = 0;  ///< the first id of this rank
  int64_t size = 0;   ///< equal on all ranks, padding included
};

VocabularyPart vocabulary_part(const ModelConfig& config, const Parallel& parallel);

/// The table of the embedding and of a tied head, or the head's own matrix.
ParameterSpec vocabulary_parameter(const std::string& name, const ModelConfig& config, const Parallel& parallel);
std::string embedding_table_name(Architecture architecture);

}  // namespace trireme::model
