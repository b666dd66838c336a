#include "trireme/data/text_source.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "trireme/base/checksum.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/mix64.h"
#include "trireme/base/not_text.h"
#include "trireme/base/text.h"
#include "trireme/data/conversation.h"
#include "trireme/data/jsonl.h"
#include "trireme/data/text_cut.h"

namespace trireme::data {
namespace fs = std::filesystem;
namespace {

using Take = std::function<void(const TextPiece&)>;

constexpr int64_t kMostFilesInBlock = 4096;
// A cut is searched for in this many bytes of each block, and judged by this much text around it.
constexpr int64_t kCutSearchBytes = int64_t{256} << 10;
constexpr int64_t kCutContextBytes = 4096;

class Reader {
 public:
  Reader(const fs::path& path, int64_t bytes) : path_(path), file_(base::open_file(path, O_RDONLY)), bytes_(bytes) {}

  int64_t bytes() const { return bytes_; }

  /// Appends bytes [begin, end) of the file to `text`. UsageError if the file has become shorter.
  void append(std::string& text, int64_t begin, int64_t end) const {
    const size_t old_size = text.size();
    text.resize(old_size + static_cast<size_t>(end - begin));
    base::read_at(file_, std::as_writable_bytes(std::span(text)).subspan(old_size), begin, path_);
  }
  std::string read(int64_t begin, int64_t end) const {
    std::string text;
    append(text, begin, end);
    return text;
  }

 private:
  const fs::path& path_;
  base::FileDescriptor file_;
  int64_t bytes_;
};

// The block's own cut, at or after its begin; nothing if its text allows none.
std::optional<TextCut> cut_in_block(const Reader& reader, const text::Tokenizer& tokenizer, int64_t begin,
                                    int64_t block_bytes) {
  if (begin == 0) return TextCut{0, 0};
  const int64_t search = std::min(kCutSearchBytes, block_bytes);
  const int64_t first = std::max<int64_t>(0, begin - kCutContextBytes);
  const int64_t last = std::min(reader.bytes(), begin + search + kCutContextBytes);
  const auto cut = find_cut(tokenizer, reader.read(first, last), begin - first);
  if (!cut || first + cut->left_end >= begin + search) return std::nullopt;
  return TextCut{first + cut->left_end, first + cut->right_begin};
}

// "data/a.jsonl:12", for errors: lines are not counted otherwise.
std::string place_of_line(const fs::path& path, int64_t begin) {
  int64_t line = 1, at = 0;
  std::string text;
  for (const Reader reader(path, begin); at < begin; at += static_cast<int64_t>(text.size())) {
    text = reader.read(at, std::min(begin, at + kTextBlockBytes));
    line += std::count(text.begin(), text.end(), '\n');
  }
  return fmt::format("{}:{}", path.string(), line);
}

// Where the first line at or after `begin` begins.
int64_t line_begin(const Reader& reader, int64_t begin, int64_t end) {
  if (begin == 0) return 0;
  const std::string text = reader.read(begin - 1, end);
  const size_t found = text.find('\n');
  return found == std::string::npos ? end : begin + static_cast<int64_t>(found);
}

}  // namespace

TextSource::TextSource(TextFiles files, std::string text_field, const text::Tokenizer& tokenizer, int64_t block_bytes)
    : files_(std::move(files)), text_field_(std::move(text_field)), tokenizer_(tokenizer), block_bytes_(block_bytes) {}

std::optional<TextBlock> TextSource::next_block() {
  if (next_file_ == files_.size()) return std::nullopt;
  TextBlock block{.first_file = next_file_, .end_file = next_file_ + 1};
  const TextKind kind = files_.kind(next_file_);
  if (kind == TextKind::plain && next_begin_ == 0 && files_.bytes(next_file_) <= 2 * block_bytes_) {
    block.bytes = files_.bytes(next_file_++);
    while (next_file_ < files_.size() && files_.kind(next_file_) == TextKind::plain &&
           block.bytes + files_.bytes(next_file_) <= block_bytes_ && next_file_ - block.first_file < kMostFilesInBlock)
      block.bytes += files_.bytes(next_file_++);
    block.end_file = next_file_;
    return block;
  }
  block.begin = next_begin_;
  if (kind == TextKind::parquet) {
    if (!parquet_) parquet_ = open_parquet(files_.path(next_file_), text_field_);
    block.end = next_begin_ + 1;
    // The blocks of a file add up to its size, though row groups do not.
    block.bytes = files_.bytes(next_file_) * block.end / std::max<int64_t>(1, parquet_->num_row_groups()) -
                  files_.bytes(next_file_) * block.begin / std::max<int64_t>(1, parquet_->num_row_groups());
    next_begin_ = block.end < parquet_->num_row_groups() ? block.end : 0;
  } else {
    block.end = files_.bytes(next_file_);
    if (kind != TextKind::json) block.end = std::min(block.end, next_begin_ + block_bytes_);
    block.bytes = block.end - block.begin;
    next_begin_ = block.end < files_.bytes(next_file_) ? block.end : 0;
  }
  if (next_begin_ == 0) {
    ++next_file_;
    parquet_.reset();
  }
  return block;
}

uint64_t TextSource::read(const TextBlock& block, const Take& take) const {
  if (block.end == 0) return read_whole(block, take);
  switch (files_.kind(block.first_file)) {
    case TextKind::plain:
      return read_plain(block, take);
    case TextKind::jsonl:
      return read_lines(block, take);
    case TextKind::json:
      return read_records(block, take);
    case TextKind::parquet:
      return read_parquet(block, take);
  }
  return 0;
}

uint64_t TextSource::read_whole(const TextBlock& block, const Take& take) const {
  uint64_t hash = 0;
  for (int64_t file = block.first_file; file < block.end_file; ++file) {
    const fs::path path = files_.path(file);
    const std::string text = Reader(path, files_.bytes(file)).read(0, files_.bytes(file));
    base::require_text(text, path);
    hash = base::mix_key(hash, base::hash_text(text));
    take({.text = base::without_byte_order_mark(text), .file = file});
  }
  return hash;
}

// Reads from this block's cut to the cut of the next block that has one. No block waits for another.
uint64_t TextSource::read_plain(const TextBlock& block, const Take& take) const {
  const fs::path path = files_.path(block.first_file);
  const Reader reader(path, files_.bytes(block.first_file));
  std::string text = reader.read(block.begin, block.end);
  if (block.begin == 0) base::require_text(text, path);
  const uint64_t hash = base::hash_text(text);
  const auto begin = cut_in_block(reader, tokenizer_, block.begin, block_bytes_);
  if (!begin) return hash;
  TextCut end{reader.bytes(), reader.bytes()};
  for (int64_t next = block.begin + block_bytes_; next < reader.bytes(); next += block_bytes_) {
    const auto cut = cut_in_block(reader, tokenizer_, next, block_bytes_);
    if (!cut) continue;
    end = *cut;
    break;
  }
  text = reader.read(begin->right_begin, end.left_end);
  take({.text = block.begin == 0 ? base::without_byte_order_mark(text) : text,
        .begins_document = block.begin == 0,
        .ends_document = end.left_end == reader.bytes(),
        .file = block.first_file});
  return hash;
}

uint64_t TextSource::read_lines(const TextBlock& block, const Take& take) const {
  const fs::path path = files_.path(block.first_file);
  const Reader reader(path, files_.bytes(block.first_file));
  const int64_t first = line_begin(reader, block.begin, block.end);
  if (first >= block.end) return 0;
  std::string text = reader.read(first, block.end);
  if (first == 0) base::require_text(text, path);
  // All of the last line belongs to this block.
  for (int64_t at = block.end; text.back() != '\n' && at < reader.bytes();) {
    const int64_t more = std::min(reader.bytes(), at + (int64_t{64} << 10));
    const size_t old_size = text.size();
    reader.append(text, at, more);
    at = more;
    if (const size_t found = text.find('\n', old_size); found != std::string::npos) text.resize(found + 1);
  }
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    try {
      if (const auto document = jsonl_text(std::string_view(text).substr(at, end - at), text_field_))
        take({.text = *document, .file = block.first_file});
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("{}: {}", place_of_line(path, first + static_cast<int64_t>(at)), error.what()));
    }
    at = end + 1;
  }
  return base::hash_text(text);
}

uint64_t TextSource::read_records(const TextBlock& block, const Take& take) const {
  const fs::path path = files_.path(block.first_file);
  const base::MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  RecordReader records(text, path.string());
  while (const auto record = records.next()) {
    try {
      if (const auto document = jsonl_text(record->text, text_field_))
        take({.text = *document, .file = block.first_file});
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("{}: {}{}", records.place(*record), error.what(),
                                   files_.is_named(block.first_file)
                                       ? ""
                                       : "; if the file is no text to learn, move it away, or name the files"));
    }
  }
  return base::hash_text(text);
}

uint64_t TextSource::read_parquet(const TextBlock& block, const Take& take) const {
  const auto column = open_parquet(files_.path(block.first_file), text_field_);
  uint64_t hash = 0;
  if (block.begin >= column->num_row_groups()) return hash;  // a file without rows
  column->read(block.begin, [&](std::optional<std::string_view> text) {
    if (text) hash = base::mix_key(hash, base::hash_text(*text));
    take({.text = text.value_or(""), .file = block.first_file});
  });
  return hash;
}

}  // namespace trireme::data
