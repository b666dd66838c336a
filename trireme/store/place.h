// Address and token of a job's store, in a file that only its owner can read: ranks that got no token from their
// launcher read both there (launch/machines/meeting_file.h).
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "trireme/store/token.h"

namespace trireme::store {

struct Place {
  std::string host;
  int port = 0;
  Token token;
  bool operator==(const Place&) const = default;
};

/// Replaces the file in one step, mode 0600. Errors    FileError
void write_place(const std::filesystem::path& path, const Place& place);

/// Nothing if there is no such file.
/// Errors    Error if it holds something else; UsageError if others can write or read it (read_secret_file); FileError
std::optional<Place> read_place(const std::filesystem::path& path);

}  // namespace trireme::store
