// A job's secret: whoever has it may join the job. It is drawn for each job and travels by a descriptor that ranks
// inherit, or in a file that nobody else may read; never on a command line or in a variable, which `ps` shows.
#pragma once

#include <filesystem>
#include <string>

#include "trireme/base/files.h"

namespace trireme::door {

using Token = std::string;

constexpr std::size_t kLeastTokenBytes = 32, kMostTokenBytes = 256;

/// 64 random hexadecimal digits: 256 bits.
Token draw_token();

/// The text of a file, without white space around it.
///
/// Errors    UsageError where the file is not this user's alone (secret_file.h), or where it holds fewer than 32
///           characters, more than 256, or such as can be guessed: by its form, words and repetitions; FileError
Token read_token_file(const std::filesystem::path& path);

/// A nameless file in memory with the token, to be inherited by a process that calls token_from_descriptor.
base::FileDescriptor token_descriptor(const Token& token);

/// Reads what token_descriptor made, as often as asked.
///
/// Errors    UsageError where `descriptor` holds no token
Token token_from_descriptor(int descriptor);

}  // namespace trireme::door
