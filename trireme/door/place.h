// Where the store of a job is and what opens it, in a file that only its owner can read: ranks that no launcher gave
// the token find both there (launch/meeting_file.h).
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "trireme/door/token.h"

namespace trireme::door {

struct Place {
  std::string host;
  int port = 0;
  Token token;
  bool operator==(const Place&) const = default;
};

/// Replaces the file in one step, mode 0600. Errors    FileError
void write_place(const std::filesystem::path& path, const Place& place);

/// Nothing where there is no such file.
/// Errors    Error where it holds something else; UsageError where it is not this user's alone (secret_file.h);
/// FileError
std::optional<Place> read_place(const std::filesystem::path& path);

}  // namespace trireme::door
