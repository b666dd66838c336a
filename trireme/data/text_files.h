// The text files that a user names, one by one or by their folder. The name decides the kind: .jsonl and .ndjson hold
// one JSON object a line, .json a list of objects (or one a line), .parquet is Parquet, and any other file is one
// document of plain text. In folders only .txt, .text and .md count as plain text, and a .json only if it holds several
// records: others describe something. The list is made for a million small files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

enum class TextKind : uint8_t { plain, jsonl, json, parquet };

/// The end of a file's name from its last dot on, in small letters: ".jsonl" of "in/A.JSONL". Empty: it has none.
std::string ending_of(std::string_view name);

/// The kind of a folder's file of that name; nothing: it is no text, or the name does not tell (.json).
std::optional<TextKind> text_kind(std::string_view name);

using TakeFile = std::function<void(const std::string& name, int64_t bytes)>;
using TakeLink = std::function<void(const std::string& name)>;

/// Calls take(name below `folder`, bytes) for each regular file of a folder and of the folders below it, in no order.
/// Names that begin with a dot are left out, and so are links to folders, which might lead back: link(name) is called.
/// Errors    UsageError: a folder that cannot be read
void for_each_file(const std::string& folder, const TakeFile& take, const TakeLink& link = {});

/// Refuses what is neither a file nor a folder. Errors    UsageError
[[noreturn]] void refuse_pipe(const std::filesystem::path& path);

/// Refuses a folder with files of text that are compressed (`names`, below it), because they would be left out. Those
/// that lie there unpacked, too, are no loss.
/// Errors    UsageError
void refuse_packed(const std::string& folder, std::span<const std::string> names);

class TextFiles {
 public:
  /// Lists `sources` in their order. Files of a folder, and of all folders below it, are sorted by the bytes of their
  /// paths. Empty files and names that begin with a dot are left out.
  ///
  /// Cost      a stat a file; of files that are named, a look at their first bytes
  /// Memory    about 40 bytes a file, and its path below the named folder
  /// Errors    UsageError, one sentence: not found, no text in a folder, neither file nor folder, compressed
  static TextFiles list(std::span<const std::string> sources);

  int64_t size() const { return static_cast<int64_t>(files_.size()); }
  std::filesystem::path path(int64_t file) const;
  int64_t bytes(int64_t file) const { return files_[static_cast<size_t>(file)].bytes; }
  TextKind kind(int64_t file) const { return files_[static_cast<size_t>(file)].kind; }
  int64_t total_bytes() const { return total_bytes_; }

  /// What the user named, with the files and bytes found there.
  struct Root {
    std::string path;
    int64_t files = 0;
    int64_t bytes = 0;
  };
  const std::vector<Root>& roots() const { return roots_; }

  /// What of the folders is not read, though it is not empty: "2 files left out, such as c.csv". Empty: nothing.
  std::string left_out_text() const;

  /// Whether the user named it, not a folder above it.
  bool is_named(int64_t file) const { return name(files_[static_cast<size_t>(file)]).empty(); }

  /// A hash of all sizes, names (below the roots, or of the file that is one) and times of change, in order.
  uint64_t fingerprint() const;

 private:
  struct File {
    int64_t bytes;
    uint64_t name;  // where its name begins in names_, up to a zero; empty for a root that is a file
    uint32_t root;
    TextKind kind;
  };
  void add_folder(const std::string& root);
  void add(uint32_t root, std::string_view name, int64_t bytes, TextKind kind);
  std::string_view name(const File& file) const { return names_.data() + file.name; }

  struct LeftOut {
    void add(const std::string& name);
    int64_t count = 0;
    std::string first;  // by name
  };

  std::vector<Root> roots_;
  LeftOut left_out_, links_left_out_;
  std::vector<File> files_;
  std::string names_;
  int64_t total_bytes_ = 0;
};

}  // namespace trireme::data
