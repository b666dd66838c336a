// A file of JSON objects, one a line.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace trireme::train {

/// Calls read(record, "FILE:LINE") for each line that is not empty. A file is checked first and read again by each
/// rank, so a pipe is refused.
/// Errors    UsageError: naming `setting` for a file that cannot be read or holds no `what`; naming file and line for
///           one that is not JSON, no object, or that `read` refuses with a UsageError
void for_each_record(const std::filesystem::path& path, const std::string& setting, const std::string& what,
                     const std::function<void(const nlohmann::json& record, const std::string& place)>& read);

/// The text under `key`.
/// Errors    UsageError naming the key
std::string text_in(const nlohmann::json& record, const char* key);

}  // namespace trireme::train
