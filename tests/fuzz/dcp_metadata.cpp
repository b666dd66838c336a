#include "targets.h"
#include "trireme/formats/dcp/dcp.h"

namespace trireme::fuzz {

/// The `.metadata` of a distributed checkpoint.
void fuzz_dcp_metadata(std::string_view bytes) {
  checkpoint::ReadBudget budget(static_cast<int64_t>(bytes.size()), ".metadata");
  for (const formats::DcpTensor& tensor : formats::parse_dcp_metadata(std::string(bytes), budget)) {
    int64_t elements = 0;
    for (const formats::DcpChunk& chunk : tensor.chunks) {
      require_inside_folder(chunk.file);
      elements += checkpoint::num_elements(chunk.sizes);
    }
    require(elements == checkpoint::num_elements(tensor.tensor.shape), "chunks fill their tensor");
  }
}

}  // namespace trireme::fuzz
