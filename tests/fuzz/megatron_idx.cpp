#include <cstring>
#include <vector>

#include "targets.h"
#include "trireme/data/megatron_index.h"

namespace trireme::fuzz {

/// An .idx behind 8 bytes that say how large its .bin is: documents follow each other and end with the tokens.
void fuzz_megatron_idx(std::string_view bytes) {
  if (bytes.size() < 8) return;
  uint64_t bin_bytes = 0;
  std::memcpy(&bin_bytes, bytes.data(), sizeof bin_bytes);
  bin_bytes &= (uint64_t{1} << 40) - 1;
  const std::vector<char> idx(bytes.begin() + 8, bytes.end());
  const data::MegatronIndex index(std::as_bytes(std::span(idx)), bin_bytes, "x.idx");
  for (int64_t d = 0; d < index.num_documents(); ++d)
    require(index.document_start(d) <= index.document_start(d + 1), "documents follow each other");
  require(index.document_start(0) == 0 || index.num_documents() == 0, "the first document begins with the tokens");
  require(index.document_start(index.num_documents()) == index.num_tokens(), "the last document ends with the tokens");
}

}  // namespace trireme::fuzz
