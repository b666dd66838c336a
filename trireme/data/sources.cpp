#include "trireme/data/sources.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>

#include "trireme/base/checksum.h"
#include "trireme/base/files.h"

namespace trireme::data {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kHashPieceBytes = int64_t{4} << 20;

[[noreturn]] void refuse(std::string_view setting, const fs::path& path, std::string_view rule) {
  throw UsageError(fmt::format("{} {}: {}", setting, path.string(), rule));
}

SourceFile stat_text(const fs::path& path, std::string_view setting) {
  std::error_code failure;
  // Asked before it is opened: opening a pipe waits for its writer.
  if (!fs::is_regular_file(path, failure)) refuse(setting, path, "is neither a text file nor a folder of .txt files");
  const auto bytes = fs::file_size(path, failure);
  if (failure) refuse(setting, path, fmt::format("cannot be read ({})", failure.message()));
  try {
    base::open_file(path, O_RDONLY);
  } catch (const base::FileError& error) {
    refuse(setting, path, fmt::format("{}; check its permissions", error.what()));
  }
  return {path, static_cast<int64_t>(bytes)};
}

std::vector<SourceFile> list_folder(const fs::path& folder, std::string_view setting) {
  std::error_code failure;
  std::vector<fs::path> names;
  for (fs::directory_iterator it(folder, failure), end; !failure && it != end; it.increment(failure)) {
    if (it->path().extension() == ".txt" && !it->is_directory(failure)) names.push_back(it->path());
  }
  if (failure) refuse(setting, folder, fmt::format("the folder cannot be read ({})", failure.message()));
  std::sort(names.begin(), names.end());
  std::vector<SourceFile> files;
  for (const auto& name : names) {
    if (auto file = stat_text(name, setting); file.bytes > 0) files.push_back(std::move(file));
  }
  if (names.empty())
    refuse(setting, folder, "the folder holds no .txt file; name a text file or a folder of .txt files");
  if (files.empty()) refuse(setting, folder, "every .txt file of the folder is empty; there is nothing to learn from");
  return files;
}

}  // namespace

std::vector<SourceFile> list_sources(const fs::path& path, std::string_view setting) {
  if (path.empty()) refuse(setting, path, "is not set; name a text file or a folder of .txt files");
  std::error_code failure;
  const auto status = fs::status(path, failure);
  if (status.type() == fs::file_type::not_found) {
    refuse(setting, path, "there is no such file or folder; name a text file or a folder of .txt files");
  }
  if (failure) refuse(setting, path, fmt::format("cannot be looked at ({})", failure.message()));
  if (fs::is_directory(status)) return list_folder(path, setting);
  SourceFile file = stat_text(path, setting);
  if (file.bytes == 0) refuse(setting, path, "the file is empty; there is nothing to learn from");
  return {std::move(file)};
}

void read_source(const SourceFile& source, int64_t piece_bytes, const std::function<void(std::string_view)>& take) {
  const base::FileDescriptor file = base::open_file(source.path, O_RDONLY);
  std::string piece;
  for (int64_t at = 0; at < source.bytes; at += static_cast<int64_t>(piece.size())) {
    const int64_t rest = source.bytes - at;
    piece.resize(static_cast<size_t>(piece_bytes == 0 ? rest : std::min(piece_bytes, rest)));
    base::read_at(file, std::as_writable_bytes(std::span(piece)), at, source.path);
    take(piece);
  }
}

uint64_t hash_sources(const std::vector<SourceFile>& files) {
  base::Checksum checksum;
  for (const auto& file : files) {
    checksum.update(std::as_bytes(std::span(&file.bytes, 1)));
    read_source(file, kHashPieceBytes,
                [&](std::string_view piece) { checksum.update(std::as_bytes(std::span(piece))); });
  }
  return checksum.value();
}

}  // namespace trireme::data
