#include "trireme/data/litdata.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <span>

#include "trireme/base/checksum.h"
#include "trireme/base/files.h"
#include "trireme/base/mix64.h"
#include "trireme/data/token_set.h"
#include "trireme/text/json_fields.h"

namespace trireme::data {
namespace fs = std::filesystem;
namespace {

// "no_header_tensor:16": a number in the table of PyTorch's dtypes, or of NumPy's, in litdata's constants.
TokenType token_type(const std::string& format) {
  static const std::map<std::string, TokenType> kFormats = {
      {"no_header_tensor:11", TokenType::uint8}, {"no_header_tensor:12", TokenType::int8},
      {"no_header_tensor:13", TokenType::int16}, {"no_header_tensor:14", TokenType::int16},
      {"no_header_tensor:15", TokenType::int32}, {"no_header_tensor:16", TokenType::int32},
      {"no_header_tensor:17", TokenType::int64}, {"no_header_tensor:18", TokenType::int64},
      {"no_header_numpy:0", TokenType::int8},    {"no_header_numpy:1", TokenType::int16},
      {"no_header_numpy:2", TokenType::int32},   {"no_header_numpy:3", TokenType::int64},
      {"no_header_numpy:4", TokenType::uint8},   {"no_header_numpy:5", TokenType::uint16}};
  const auto found = kFormats.find(format);
  if (found == kFormats.end())
    throw UsageError(
        fmt::format("config.data_format is {:?}, which are no rows of tokens (no_header_tensor or no_header_numpy of "
                    "whole numbers up to 64 bits)",
                    text::shown(format)));
  return found->second;
}

LitdataIndex index_of(const nlohmann::json& json) {
  const text::JsonObject top(json, ""), config = top.object("config");
  if (config.find("compression") != nullptr)
    throw UsageError(
        fmt::format("its chunks are compressed ({}), which is not supported; write them without compression",
                    text::shown(config.at("compression").dump())));
  if (config.find("encryption") != nullptr) throw UsageError("its chunks are encrypted, which is not supported");
  const nlohmann::json& formats = config.array("data_format");
  if (formats.size() != 1 || !formats[0].is_string())
    throw UsageError("config.data_format is not one string; only items of one row of tokens are supported");
  LitdataIndex index{.type = token_type(formats[0].get<std::string>()), .chunks = {}};
  const nlohmann::json& chunks = top.array("chunks");
  for (size_t i = 0; i < chunks.size(); ++i) {
    const text::JsonObject chunk(chunks[i], fmt::format("chunks[{}]", i));
    const std::string file = chunk.text("filename");
    if (file.empty() || file.find('\0') != std::string::npos || file != fs::path(file).filename().string() ||
        file == "." || file == "..")
      throw UsageError(fmt::format("{} is {:?}, which is no name of a file in the folder", chunk.place_of("filename"),
                                   text::shown(file)));
    index.chunks.push_back({file, chunk.integer("chunk_size"), chunk.integer("dim", -1)});
  }
  return index;
}

[[noreturn]] void refuse_chunk(const std::string& name, std::string_view rule) {
  throw UsageError(fmt::format("{} is no chunk of litdata's TokensLoader: {}", name, rule));
}

struct OpenChunk {
  std::shared_ptr<const base::MappedFile> file;
  LitdataChunk chunk;
  int64_t first_document, first_token;
};

}  // namespace

LitdataIndex parse_litdata_index(std::string_view json, const std::string& name) {
  return text::read_json(json, name, "is not an index of litdata chunks that can be read", index_of);
}

LitdataChunk::LitdataChunk(std::span<const std::byte> bytes, TokenType type, const LitdataIndex::Chunk& said,
                           const std::string& name)
    : bytes_(bytes.data()), width_(bytes_per_token(type)) {
  uint32_t count = 0;
  if (bytes.size() >= sizeof count) std::memcpy(&count, bytes.data(), sizeof count);
  if (bytes.size() < 8 || bytes.size() / 4 - 2 < count)
    refuse_chunk(name, fmt::format("{} borders of documents do not fit into its {} bytes", count, bytes.size()));
  num_documents_ = count;
  if (num_documents_ != said.documents)
    refuse_chunk(name, fmt::format("it holds {} items and index.json says {}", count, said.documents));
  if (offset(0) != 4 * (num_documents_ + 2))
    refuse_chunk(name, fmt::format("its first item begins at byte {} and not behind the header at {}", offset(0),
                                   4 * (num_documents_ + 2)));
  for (int64_t d = 0; d < num_documents_; ++d)
    if (offset(d + 1) < offset(d) || (offset(d + 1) - offset(d)) % width_ != 0)
      refuse_chunk(name, fmt::format("item {} goes from byte {} to {}, which are no whole tokens of {} bytes", d,
                                     offset(d), offset(d + 1), width_));
  if (offset(num_documents_) != static_cast<int64_t>(bytes.size()))
    refuse_chunk(name,
                 fmt::format("its last item ends at byte {} and the file at {}", offset(num_documents_), bytes.size()));
  if (said.tokens >= 0 && said.tokens != num_tokens())
    refuse_chunk(name, fmt::format("it holds {} tokens and index.json says {}", num_tokens(), said.tokens));
}

int64_t LitdataChunk::offset(int64_t d) const {
  uint32_t value;
  std::memcpy(&value, bytes_ + 4 * (d + 1), sizeof value);
  return value;
}

namespace {

/// Of blocks all over a chunk: many short rows fill its first ones with their borders alone.
uint64_t sampled_hash(std::span<const std::byte> bytes) {
  constexpr size_t kBlock = 4 << 10, kBlocks = 8;
  uint64_t hash = bytes.size();
  const size_t step = std::max(kBlock, bytes.size() / kBlocks);
  for (size_t at = 0; at < bytes.size(); at += step)
    hash = base::mix_key(hash, base::checksum(bytes.subspan(at, std::min(kBlock, bytes.size() - at))));
  return hash;
}

}  // namespace

bool is_litdata(const fs::path& folder) { return base::is_file(folder / "index.json"); }

TokenSet open_litdata(const fs::path& folder) {
  const fs::path index_path = folder / "index.json";
  const std::string json = base::read_side_file(index_path);
  const LitdataIndex index = parse_litdata_index(json, index_path.string());
  auto open = std::make_shared<std::vector<OpenChunk>>();
  std::vector<TokenView::Piece> pieces;
  int64_t documents = 0, tokens = 0;
  uint64_t fingerprint = base::hash_text(json);
  for (const LitdataIndex::Chunk& said : index.chunks) {
    const auto file = std::make_shared<const base::MappedFile>(folder / said.file);
    const LitdataChunk chunk(file->bytes(), index.type, said, file->path().string());
    if (chunk.num_documents() == 0) continue;
    open->push_back({file, chunk, documents, tokens});
    if (chunk.num_tokens() > 0) pieces.push_back({std::shared_ptr<const std::byte>(file, chunk.tokens()), tokens});
    documents += chunk.num_documents();
    tokens += chunk.num_tokens();
    fingerprint = base::mix_key(fingerprint, sampled_hash(file->bytes()));
  }
  TokenSet set;
  set.path_ = folder;
  if (!pieces.empty()) set.view_ = TokenView(std::move(pieces), index.type, tokens);
  set.num_documents_ = documents;
  set.fingerprint_ = fingerprint;
  set.document_start_ = [open, documents, tokens](int64_t d) {
    if (d == documents) return tokens;
    const auto next = std::upper_bound(open->begin(), open->end(), d, [](int64_t document, const OpenChunk& c) {
      return document < c.first_document;
    });
    const OpenChunk& c = *std::prev(next);
    return c.first_token + c.chunk.document_start(d - c.first_document);
  };
  return set;
}

}  // namespace trireme::data
