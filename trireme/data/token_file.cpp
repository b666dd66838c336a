#include "trireme/data/token_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>

namespace trireme::data {
namespace fs = std::filesystem;
namespace {

static_assert(std::endian::native == std::endian::little, "token files are read in place, little-endian");

constexpr char kMagic[8] = "TRIREME";
constexpr uint32_t kVersion = 1;

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t width;
  uint64_t num_tokens;
  uint64_t source_fingerprint;
  uint64_t tokenizer_fingerprint;
  uint64_t vocab_size;
  uint64_t num_documents;
  uint64_t zero;
};
static_assert(sizeof(Header) == 64);

int width_for(int64_t vocab_size) { return vocab_size <= 256 ? 1 : vocab_size <= 65536 ? 2 : 4; }

template <typename Id>
void widen(const std::byte* bytes, std::span<int64_t> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    Id id;
    std::memcpy(&id, bytes + i * sizeof(Id), sizeof(Id));
    out[i] = id;
  }
}

bool is_sound(const Header& header, uint64_t file_bytes) {
  return std::memcmp(header.magic, kMagic, sizeof kMagic) == 0 && header.version == kVersion &&
         static_cast<int>(header.width) == width_for(static_cast<int64_t>(header.vocab_size)) &&
         header.num_tokens <= file_bytes && sizeof(Header) + header.num_tokens * header.width == file_bytes;
}

}  // namespace

int64_t TokenView::operator[](int64_t index) const {
  int64_t token = 0;
  copy(index, {&token, 1});
  return token;
}

void TokenView::copy(int64_t first, std::span<int64_t> out) const {
  const auto count = static_cast<int64_t>(out.size());
  check_invariant(first >= 0 && first + count <= size_, "a window of tokens lies inside its corpus");
  const std::byte* from = bytes_.get() + first * width_;
  if (width_ == 1) widen<uint8_t>(from, out);
  if (width_ == 2) widen<uint16_t>(from, out);
  if (width_ == 4) widen<uint32_t>(from, out);
}

TokenView TokenView::sub(int64_t first, int64_t count) const {
  check_invariant(first >= 0 && count >= 0 && first + count <= size_, "a part of a corpus lies inside it");
  return {std::shared_ptr<const std::byte>(bytes_, bytes_.get() + first * width_), width_, count};
}

std::optional<TokenFile> open_token_file(const fs::path& path) {
  std::shared_ptr<const base::MappedFile> file;
  try {
    file = std::make_shared<const base::MappedFile>(path);
  } catch (const base::FileError&) {
    return std::nullopt;
  }
  Header header{};
  if (file->bytes().size() < sizeof header) return std::nullopt;
  std::memcpy(&header, file->bytes().data(), sizeof header);
  if (!is_sound(header, file->bytes().size())) return std::nullopt;
  const TokenFileInfo info{.num_tokens = static_cast<int64_t>(header.num_tokens),
                           .num_documents = static_cast<int64_t>(header.num_documents),
                           .vocab_size = static_cast<int64_t>(header.vocab_size),
                           .source_fingerprint = header.source_fingerprint,
                           .tokenizer_fingerprint = header.tokenizer_fingerprint};
  const std::shared_ptr<const std::byte> ids(file, file->bytes().data() + sizeof header);
  return TokenFile{info, TokenView(ids, static_cast<int>(header.width), info.num_tokens)};
}

TokenFileWriter::TokenFileWriter(fs::path path, int64_t vocab_size)
    : path_(std::move(path)), vocab_size_(vocab_size), width_(width_for(vocab_size)) {
  std::error_code failure;
  fs::create_directories(path_.parent_path(), failure);
  if (failure) base::throw_file_error("create", path_.parent_path(), failure.value());
  std::string name = path_.string() + ".XXXXXX";
  file_ = base::FileDescriptor(::mkostemp(name.data(), O_CLOEXEC));
  if (file_.get() < 0) base::throw_file_error("create", path_, errno);
  temporary_ = name;
  ::fchmod(file_.get(), 0644);  // a later run of another user may map it
}

TokenFileWriter::~TokenFileWriter() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void TokenFileWriter::append(std::span<const int32_t> ids) {
  packed_.resize(ids.size() * static_cast<size_t>(width_));
  std::byte* out = packed_.data();
  for (const int32_t id : ids) {
    check_invariant(id >= 0 && id < vocab_size_, "a tokenizer's ids lie inside its vocabulary");
    std::memcpy(out, &id, static_cast<size_t>(width_));  // little-endian: the low bytes come first
    out += width_;
  }
  base::write_at(file_, packed_, static_cast<int64_t>(sizeof(Header)) + num_tokens_ * width_, path_);
  num_tokens_ += static_cast<int64_t>(ids.size());
}

void TokenFileWriter::commit(TokenFileInfo info) {
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = kVersion;
  header.width = static_cast<uint32_t>(width_);
  header.num_tokens = static_cast<uint64_t>(num_tokens_);
  header.source_fingerprint = info.source_fingerprint;
  header.tokenizer_fingerprint = info.tokenizer_fingerprint;
  header.vocab_size = static_cast<uint64_t>(vocab_size_);
  header.num_documents = static_cast<uint64_t>(info.num_documents);
  base::write_at(file_, std::as_bytes(std::span(&header, 1)), 0, path_);
  if (::fsync(file_.get()) != 0) base::throw_file_error("write", path_, errno);
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) base::throw_file_error("replace", path_, errno);
  temporary_.clear();
}

}  // namespace trireme::data
