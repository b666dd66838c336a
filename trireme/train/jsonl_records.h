// A file of JSON objects: one a line, or a JSON list of them, as data files may be.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace trireme::train {

/// Calls read(text, "FILE:LINE", line) for each line that is not empty, or for each object of a list. What is read is
/// not parsed yet. A file is checked first and read again by each rank, so a pipe is refused.
/// Errors    UsageError naming `setting` for a file that cannot be read, and the place in a list that is broken
void for_each_json_text(const std::filesystem::path& path, const std::string& setting,
                        const std::function<void(std::string_view text, const std::string& place, int64_t line)>& read);

/// The same with the parsed objects.
/// Errors    UsageError: naming `setting` for a file that cannot be read or holds no `what`; naming file and line for
///           one that is not JSON, no object, or that `read` refuses with a UsageError
void for_each_record(const std::filesystem::path& path, const std::string& setting, const std::string& what,
                     const std::function<void(const nlohmann::json& record, const std::string& place)>& read);

/// The text under `key`.
/// Errors    UsageError naming the key
std::string text_in(const nlohmann::json& record, const char* key);

}  // namespace trireme::train
