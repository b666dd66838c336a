#include <cstring>
#include <vector>

#include "targets.h"
#include "trireme/data/litdata.h"

namespace trireme::fuzz {

/// A chunk of litdata's TokensLoader behind a byte that says its dtype; its documents lie in it one after the other.
void fuzz_litdata_chunk(std::string_view bytes) {
  if (bytes.size() < 5) return;
  const auto type = static_cast<data::TokenType>(static_cast<unsigned char>(bytes[0]) % 6);
  // A copy of its own, so that reading one byte too far is seen.
  const std::vector<char> chunk(bytes.begin() + 1, bytes.end());
  uint32_t documents = 0;
  std::memcpy(&documents, chunk.data(), sizeof documents);
  const data::LitdataChunk parsed(std::as_bytes(std::span(chunk)), type, {"chunk.bin", documents, -1}, "chunk.bin");
  for (int64_t d = 0; d < parsed.num_documents(); ++d)
    require(parsed.document_start(d) <= parsed.document_start(d + 1), "documents follow each other");
  const auto tokens = std::shared_ptr<const std::byte>(std::shared_ptr<void>(), parsed.tokens());
  const data::TokenView view(tokens, type, parsed.num_tokens());
  std::vector<int64_t> ids(static_cast<size_t>(view.size()));
  view.copy(0, ids);
}

}  // namespace trireme::fuzz
