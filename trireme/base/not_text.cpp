#include "trireme/base/not_text.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/text.h"
#include "trireme/base/utf8.h"

namespace trireme::base {
namespace {

using std::string_view_literals::operator""sv;

constexpr size_t kTellingBytes = 4096;

struct Kind {
  std::string_view begin;
  std::string_view is;
  std::string_view way_out;  ///< {0}: the file, for a shell
};

constexpr std::string_view kWeights = "name a file of text";
// Records of Parquet are not read, and texts to pretrain on are: from a file with its name.
constexpr std::string_view kParquet =
    "write it as JSONL first (python3 -c \"import sys, pandas; pandas.read_parquet(sys.argv[1]).to_json('NEW.jsonl', "
    "orient='records', lines=True)\" {0})";

// Of Hugging Face's datasets, which lie in folders of their own.
constexpr std::string_view kArrow =
    "write it as JSONL first (python3 -c \"import sys, datasets; "
    "datasets.Dataset.from_file(sys.argv[1]).to_json('NEW.jsonl')\" {0})";
constexpr std::string_view kTokens =
    "tokens are read from PREFIX.bin with PREFIX.idx beside it; trireme data tokenize makes both from text";

constexpr std::string_view kOther = "it is no UTF-8 text; convert it first (iconv), or name a file of text";

constexpr Kind kKinds[] = {
    {"\x1F\x8B"sv, "is compressed (gzip)", "unpack it first (gunzip -k {0})"},
    {"\x28\xB5\x2F\xFD"sv, "is compressed (zstd)", "unpack it first (unzstd {0})"},
    {"\xFD"
     "7zXZ\0"sv,
     "is compressed (xz)", "unpack it first (unxz -k {0})"},
    {"PK\x03\x04"sv, "is a zip archive", "unpack it first (unzip {0})"},
    {"PAR1"sv, "is Parquet", kParquet},
    {"ARROW1"sv, "is Arrow", kArrow},
    {"\xFF\xFF\xFF\xFF"sv, "is Arrow", kArrow},
    {"\x93NUMPY"sv, "is an array of NumPy", kTokens},
    {"GGUF\x01\0\0\0"sv, "is a model (GGUF)", kWeights},
    {"GGUF\x02\0\0\0"sv, "is a model (GGUF)", kWeights},
    {"GGUF\x03\0\0\0"sv, "is a model (GGUF)", kWeights},
    {"\xFF\xFE\0\0"sv, "is UTF-32", "convert it first (iconv -f UTF-32 -t UTF-8 {0} > NEW)"},
    {"\xFF\xFE"sv, "is UTF-16", "convert it first (iconv -f UTF-16 -t UTF-8 {0} > NEW)"},
    {"\xFE\xFF"sv, "is UTF-16", "convert it first (iconv -f UTF-16 -t UTF-8 {0} > NEW)"},
};

// "BZh" may begin a text, so the magic number of its first block is looked at, too.
bool is_bzip2(std::string_view begin) {
  constexpr std::string_view kBlock = "\x31\x41\x59\x26\x53\x59"sv, kEnd = "\x17\x72\x45\x38\x50\x90"sv;
  return begin.starts_with("BZh") && begin.size() >= 10 && (begin.substr(4, 6) == kBlock || begin.substr(4, 6) == kEnd);
}

// The length of its header in eight bytes, then the header: a JSON object of less than 4 GiB.
bool is_safetensors(std::string_view begin) {
  return begin.size() > 8 && begin[8] == '{' && begin.substr(4, 4) == "\0\0\0\0"sv;
}

bool is_utf8(std::string_view begin) {
  constexpr size_t kLongest = 4;  // the last character may be cut off
  for (size_t at = 0; at < begin.size();) {
    const Character c = character_at(begin, at);
    if (c.code == kIllFormed) return at + kLongest > begin.size();
    at += static_cast<size_t>(c.bytes);
  }
  return true;
}

// Backspace to carriage return, and the escape of colours.
bool is_of_text(unsigned char c) { return (c >= '\b' && c <= '\r') || c == 0x1B; }

const Kind* kind_of(std::string_view begin, const std::filesystem::path& path) {
  constexpr std::string_view kZero = "a text has none; name a file of text, or write it without them";
  static constexpr Kind kBzip2{"", "is compressed (bzip2)", "unpack it first (bunzip2 -k {0})"};
  static constexpr Kind kSafetensors{"", "holds weights (safetensors)", kWeights};
  static constexpr Kind kWide{"", "holds bytes of value zero", kOther}, kZeros{"", "holds bytes of value zero", kZero},
      kTokenFile{"", "holds bytes of value zero", kTokens}, kControls{"", "holds control characters", kOther},
      kNumbers{"", "holds control characters", kTokens};
  if (is_bzip2(begin)) return &kBzip2;
  if (is_safetensors(begin)) return &kSafetensors;
  const auto* found = std::ranges::find_if(kKinds, [&](const Kind& kind) { return begin.starts_with(kind.begin); });
  if (found != std::end(kKinds)) return found;
  // Numbers of two or four bytes have many; a stray one in a text is kept.
  constexpr std::ptrdiff_t kMost = 16;
  const std::string_view head = begin.substr(0, kTellingBytes);
  const bool has_zeros = std::ranges::count(head, '\0') * kMost > std::ssize(head);
  const auto controls = std::ranges::count_if(head, [](unsigned char c) { return c < ' ' && !is_of_text(c); });
  // Separators such as 0x01 and 0x1F stand in texts, too.
  if (!has_zeros && (controls < kMost || controls * kMost <= std::ssize(head) || is_utf8(head))) return nullptr;
  const bool is_named = path.extension() == ".bin" || path.extension() == ".npy";
  const bool is_wide = std::ranges::count(head, '\0') * 3 > std::ssize(head);  // perhaps UTF-16 without its mark
  return has_zeros ? (is_named ? &kTokenFile : is_wide ? &kWide : &kZeros) : (is_named ? &kNumbers : &kControls);
}

}  // namespace

void require_text(std::string_view begin, const std::filesystem::path& path) {
  const Kind* kind = kind_of(begin, path);
  if (kind == nullptr) return;
  const bool needs_name = kind->way_out == kParquet && path.extension() != ".parquet";
  throw UsageError(fmt::format("{} {} and is not read as text: {}{}", path.string(), kind->is,
                               fmt::format(fmt::runtime(kind->way_out), shell_quoted(path.string())),
                               needs_name ? "; texts to pretrain on need a name that ends in .parquet" : ""));
}

void require_text_file(const std::filesystem::path& path) {
  const FileDescriptor file = open_file(path, O_RDONLY);
  std::array<char, kTellingBytes> begin{};
  const ssize_t got = ::pread(file.get(), begin.data(), begin.size(), 0);
  if (got < 0) throw_file_error("read", path, errno);
  require_text({begin.data(), static_cast<size_t>(got)}, path);
}

std::string read_text_file(const std::filesystem::path& path) {
  std::string text = read_file(path);
  require_text(text, path);
  return text;
}

void refuse_folder(const std::filesystem::path& path, std::string_view way_out) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    throw UsageError(fmt::format("{} is a folder, and a single file is read: {}", path.string(), way_out));
}

std::optional<std::string_view> unpacked_name(std::string_view name) {
  const auto is_same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; };
  for (const std::string_view end : {".gz", ".zst", ".xz", ".bz2"})
    if (name.size() >= end.size() && std::ranges::equal(name.substr(name.size() - end.size()), end, is_same))
      return name.substr(0, name.size() - end.size());
  return std::nullopt;
}

}  // namespace trireme::base
