// Files that are no text, though somebody names them as text: compressed ones, weights, Parquet. Their first bytes
// tell.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::base {

/// Refuses a file that begins with `begin`, if these bytes show that it is no text: "a.txt.gz is compressed (gzip) and
/// is not read as text: unpack it first (gunzip -k a.txt.gz)". Of text behind the first 4 KiB nothing is looked at:
/// token files have a zero before. Errors    UsageError
void require_text(std::string_view begin, const std::filesystem::path& path);

/// The same for a file that is not read yet. Errors    UsageError, FileError
void require_text_file(const std::filesystem::path& path);

/// read_file() of a file that holds text. Errors    UsageError, FileError
std::string read_text_file(const std::filesystem::path& path);

/// Refuses a folder where a single file is read. Errors    UsageError that ends with `way_out`
void refuse_folder(const std::filesystem::path& path, std::string_view way_out);

/// What a compressed file of that name holds: "a.txt" for "a.txt.gz". Nothing for other names.
std::optional<std::string_view> unpacked_name(std::string_view name);

}  // namespace trireme::base
