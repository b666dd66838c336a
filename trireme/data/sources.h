// The text files that a data path names: one file, or all *.txt files of a folder sorted by name (bytes of
// the name, so the order does not depend on the locale). Empty files of a folder are left out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>
#include <vector>

namespace trireme::data {

struct SourceFile {
  std::filesystem::path path;
  int64_t bytes = 0;
};

/// Lists the documents at `path`, given by the user as setting `setting` ("data.train_data_path").
///
/// Cost      one stat and one open per file; reads no text
/// Errors    UsageError, one sentence: nothing there, not readable, neither file nor folder, an empty
///           file, a folder without text
std::vector<SourceFile> list_sources(const std::filesystem::path& path, std::string_view setting);

/// Hands the file's bytes to `take` in pieces of at most `piece_bytes` (0: the whole file at once).
/// UsageError when it cannot be read or has become shorter.
void read_source(const SourceFile& file, int64_t piece_bytes, const std::function<void(std::string_view)>& take);

/// XXH3 over the sizes and contents in order: the same texts give the same number wherever they lie.
uint64_t hash_sources(const std::vector<SourceFile>& files);

}  // namespace trireme::data
