#include "targets.h"
#include "trireme/data/litdata.h"

namespace trireme::fuzz {

/// The index.json of a folder of chunks: no name leads out of the folder.
void fuzz_litdata_index(std::string_view bytes) {
  const data::LitdataIndex index = data::parse_litdata_index(bytes, "index.json");
  for (const auto& chunk : index.chunks) require_inside_folder(chunk.file);
}

}  // namespace trireme::fuzz
