// A job's secret: whoever has it may join the job. Each job has a new one. Ranks get it by a descriptor that they
// inherit, or in a file that nobody else may read; never on a command line or in a variable, which `ps` shows.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "trireme/base/files.h"

namespace trireme::store {

using Token = std::string;

constexpr std::size_t kLeastTokenBytes = 32, kMostTokenBytes = 256;

/// 64 random hexadecimal digits: 256 bits.
Token draw_token();

/// Whether the length is that of a token.
inline bool is_token(const std::string& text) {
  return text.size() >= kLeastTokenBytes && text.size() <= kMostTokenBytes;
}

/// Reads a file that decides whom a job trusts. Every such file is read by this function, and only if no other user can
/// write or read it. Returns nothing if there is no file. It may have `most_bytes` at most. A path in /proc/self/fd
/// names a descriptor that this process has inherited.
///
/// Errors    UsageError if it is a symbolic link, has a second hard link, is not a plain file, belongs to another user,
///           or others can read or write it (the mode must be 0600 or stricter); FileError
std::optional<std::string> read_secret_file(const std::filesystem::path& path, std::size_t most_bytes);

/// The text of a file, without leading and trailing white space.
///
/// Errors    UsageError if others can write or read the file (read_secret_file), or if the text has fewer than 32
///           characters, more than 256, or a form that can be guessed (words, repetitions); FileError
Token read_token_file(const std::filesystem::path& path);

/// A file in memory, without a name, that holds the token; a child inherits it and calls token_from_descriptor.
base::FileDescriptor token_descriptor(const Token& token);

/// Reads what token_descriptor made; may be called any number of times.
///
/// Errors    UsageError where `descriptor` holds no token
Token token_from_descriptor(int descriptor);

}  // namespace trireme::store
