#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/data/token_fingerprint.h"
#include "trireme/data/token_set.h"

namespace trireme::data {
namespace fs = std::filesystem;
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr int64_t kMostSequenceTokens = std::numeric_limits<int32_t>::max();

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

fs::path with_suffix(const fs::path& prefix, std::string_view suffix) { return prefix.string() + std::string(suffix); }

bool is_token_set_about(const fs::path& json) {
  const base::FileDescriptor file = base::open_file(json, O_RDONLY);
  std::string begin(64, ' ');
  const ssize_t got = ::pread(file.get(), begin.data(), begin.size(), 0);
  begin.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return begin.empty() || begin.find("\"trireme tokens\"") != std::string::npos;  // an empty file is no loss
}

}  // namespace

TokenSetWriter::TokenSetWriter(fs::path prefix, int64_t vocab_size, bool with_mask, unsigned mode)
    : prefix_(std::move(prefix)), vocab_size_(vocab_size), type_(token_type_for(vocab_size)), mode_(mode) {
  prepare_place();
  bin_ = create(".bin");
  idx_ = create(".idx");
  if (with_mask) mask_ = create(".mask");
  write(idx_, std::vector<std::byte>(kMegatronHeaderBytes));
}

TokenSetWriter::TokenSetWriter(fs::path prefix, int64_t vocab_size, const TokenSetProgress& from, unsigned mode)
    : prefix_(std::move(prefix)),
      vocab_size_(vocab_size),
      type_(token_type_for(vocab_size)),
      mode_(mode),
      at_(from),
      keeps_parts_(true) {
  prepare_place();
  bin_ = reopen(".bin", at_.tokens * bytes_per_token(type_));
  idx_ = reopen(".idx", at_.sequences == 0 ? 0 : static_cast<int64_t>(kMegatronHeaderBytes) + 4 * at_.sequences);
  if (at_.sequences == 0) write(idx_, std::vector<std::byte>(kMegatronHeaderBytes));
}

void TokenSetWriter::prepare_place() const {
  const fs::path folder = prefix_.has_parent_path() ? prefix_.parent_path() : fs::path(".");
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) base::throw_file_error("create", folder, failure.value());
  // A text may already be at PREFIX.json, or a model at PREFIX.bin.
  const fs::path json = with_suffix(prefix_, ".json"), bin = with_suffix(prefix_, ".bin");
  const bool is_ours = fs::exists(json) && is_token_set_about(json);
  if (fs::exists(json) && !is_ours)
    throw UsageError(
        fmt::format("{} is there and describes no tokenized data set; name another output", json.string()));
  for (const fs::path& file : {bin, with_suffix(prefix_, ".mask")})
    if (fs::exists(file) && !is_ours && !fs::exists(with_suffix(prefix_, ".idx")))
      throw UsageError(
          fmt::format("{} is there and belongs to no tokenized data set; name another output", file.string()));
}

TokenSetWriter::Part TokenSetWriter::reopen(const char* suffix, int64_t bytes) const {
  Part part;
  part.temporary = with_suffix(prefix_, suffix).string() + ".part";
  part.file = base::open_file(part.temporary, O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
  ::fchmod(part.file.get(), mode_);
  if (::flock(part.file.get(), LOCK_EX | LOCK_NB) != 0)
    throw UsageError(fmt::format("another process is writing {}; wait until it ends, or name another output",
                                 part.temporary.string()));
  struct stat info{};
  if (::fstat(part.file.get(), &info) != 0) base::throw_file_error("read the size of", part.temporary, errno);
  if (info.st_size < bytes)
    throw UsageError(fmt::format("{} has {} bytes, fewer than the {} that were written: remove it and start again",
                                 part.temporary.string(), info.st_size, bytes));
  if (::ftruncate(part.file.get(), bytes) != 0) base::throw_file_error("cut", part.temporary, errno);
  part.bytes = bytes;
  return part;
}

TokenSetProgress TokenSetWriter::sync() {
  to_disk(bin_);
  to_disk(idx_);
  return at_;
}

TokenSetWriter::~TokenSetWriter() {
  const auto remove = [](const Part& part) {
    if (!part.temporary.empty()) ::unlink(part.temporary.c_str());
  };
  if (json_) remove(*json_);
  if (keeps_parts_) return;
  remove(bin_);
  remove(idx_);
  if (mask_) remove(*mask_);
}

TokenSetWriter::Part TokenSetWriter::create(const char* suffix) const {
  std::string name = with_suffix(prefix_, suffix).string() + ".XXXXXX";
  Part part;
  part.file = base::FileDescriptor(::mkostemp(name.data(), O_CLOEXEC));
  if (part.file.get() < 0) base::throw_file_error("create", with_suffix(prefix_, suffix), errno);
  part.temporary = name;
  ::fchmod(part.file.get(), mode_);  // other users who may read the text may map the set in later runs
  return part;
}

void TokenSetWriter::write(Part& part, std::span<const std::byte> bytes) {
  part.buffer.insert(part.buffer.end(), bytes.begin(), bytes.end());
  if (part.buffer.size() >= kBufferBytes) flush(part);
}

void TokenSetWriter::flush(Part& part) {
  base::write_at(part.file, part.buffer, part.bytes, part.temporary);
  part.bytes += static_cast<int64_t>(part.buffer.size());
  part.buffer.clear();
}

void TokenSetWriter::to_disk(Part& part) {
  flush(part);
  if (::fsync(part.file.get()) != 0) base::throw_file_error("write", part.temporary, errno);
}

void TokenSetWriter::append_document(std::span<const int32_t> ids, std::span<const uint8_t> mask) {
  append(ids, mask);
  end_document();
}

void TokenSetWriter::append(std::span<const int32_t> ids, std::span<const uint8_t> mask) {
  if (!mask.empty() && !mask_)
    throw UsageError(
        fmt::format("{} is a set without a mask; make its writer with_mask, or append without one", prefix_.string()));
  if (!mask.empty() && mask.size() != ids.size())
    throw UsageError(fmt::format("{}: a mask of {} bytes for {} tokens; a mask has one byte for each token",
                                 prefix_.string(), mask.size(), ids.size()));
  const auto width = static_cast<size_t>(bytes_per_token(type_));
  packed_.resize(ids.size() * width);
  std::byte* out = packed_.data();
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size_)
      throw UsageError(fmt::format("{}: the token {} is not in the vocabulary of {}; pass its tokenizer's vocab_size",
                                   prefix_.string(), id, vocab_size_));
    std::memcpy(out, &id, width);  // little-endian: the low bytes come first
    out += width;
  }
  write(bin_, packed_);
  if (mask_)
    write(*mask_, mask.empty() ? std::vector<std::byte>(ids.size(), std::byte{1})
                               : std::vector<std::byte>(std::as_bytes(mask).begin(), std::as_bytes(mask).end()));
  at_.supervised += mask.empty() ? static_cast<int64_t>(ids.size()) : std::count(mask.begin(), mask.end(), 1);
  at_.tokens += static_cast<int64_t>(ids.size());
  at_.sequence_tokens += static_cast<int64_t>(ids.size());
  while (at_.sequence_tokens > kMostSequenceTokens) {
    const int64_t rest = at_.sequence_tokens - kMostSequenceTokens;
    at_.sequence_tokens = kMostSequenceTokens;
    end_sequence();
    at_.sequence_tokens = rest;
  }
}

void TokenSetWriter::end_sequence() {
  write(idx_, bytes_of(static_cast<int32_t>(at_.sequence_tokens)));
  at_.sequence_tokens = 0;
  ++at_.sequences;
  ++at_.document_sequences;
}

void TokenSetWriter::end_document() {
  end_sequence();
  if (at_.document_sequences > 1) at_.long_documents.emplace_back(at_.documents, at_.document_sequences);
  at_.document_sequences = 0;
  ++at_.documents;
}

void TokenSetWriter::finish_index() {
  flush(idx_);
  std::vector<int32_t> lengths;
  int64_t pointer = 0;
  for (int64_t s = 0; s < at_.sequences; s += static_cast<int64_t>(lengths.size())) {
    lengths.resize(static_cast<size_t>(std::min<int64_t>(at_.sequences - s, kBufferBytes)));
    base::read_at(idx_.file, std::as_writable_bytes(std::span(lengths)),
                  static_cast<int64_t>(kMegatronHeaderBytes) + 4 * s, idx_.temporary);
    for (const int32_t length : lengths) {
      write(idx_, bytes_of(pointer));
      pointer += int64_t{length} * bytes_per_token(type_);
    }
  }
  auto next_long = at_.long_documents.begin();
  int64_t sequence = 0;
  for (int64_t d = 0; d <= at_.documents; ++d) {
    write(idx_, bytes_of(sequence));
    const bool is_long = next_long != at_.long_documents.end() && next_long->first == d;
    sequence += is_long ? (next_long++)->second : 1;
  }
  flush(idx_);
  const std::string header = megatron_header({type_, at_.sequences, at_.documents + 1});
  base::write_at(idx_.file, std::as_bytes(std::span(header)), 0, idx_.temporary);
}

void TokenSetWriter::appear(Part& part, const char* suffix) {
  const fs::path path = with_suffix(prefix_, suffix);
  if (std::rename(part.temporary.c_str(), path.c_str()) != 0) base::throw_file_error("replace", path, errno);
  part.temporary.clear();
}

TokenSetAbout TokenSetWriter::commit(TokenSetAbout about) {
  if (at_.sequence_tokens != 0 || at_.document_sequences != 0)
    throw UsageError(
        fmt::format("{}: a set is committed between documents; call end_document() first", prefix_.string()));
  finish_index();
  std::vector<fs::path> files;
  for (Part* part : {&bin_, &idx_, mask_ ? &*mask_ : nullptr}) {
    if (part == nullptr) continue;
    to_disk(*part);
    files.push_back(part->temporary);
  }
  about.vocab_size = vocab_size_;
  about.num_documents = at_.documents;
  about.num_tokens = at_.tokens;
  about.supervised_tokens = at_.supervised;
  about.fingerprint = fingerprint_files(about.tokenizer_fingerprint, files);
  json_ = create(".json");
  const std::string json = to_json(about);
  write(*json_, std::as_bytes(std::span(json)));
  to_disk(*json_);
  // A set exists if its .idx does: an old .idx is removed first, the new one appears last.
  if (!holds(about.fingerprint)) ::unlink(with_suffix(prefix_, ".idx").c_str());
  appear(*json_, ".json");  // marks the others as a token set's
  if (mask_) {
    appear(*mask_, ".mask");
  } else {
    ::unlink(with_suffix(prefix_, ".mask").c_str());
  }
  appear(bin_, ".bin");
  base::fsync_directory(base::parent_of(prefix_));  // no crash leaves the .idx there without them
  appear(idx_, ".idx");
  base::fsync_directory(base::parent_of(prefix_));
  return about;
}

bool TokenSetWriter::holds(uint64_t fingerprint) const {
  try {
    return TokenSet::exists(prefix_) && TokenSet::open(prefix_).fingerprint() == fingerprint;
  } catch (const UsageError&) {
    return false;  // damaged
  }
}

}  // namespace trireme::data
