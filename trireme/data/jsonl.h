// Reads one field of JSONL, which has a JSON object in each line.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trireme::data {

/// The string at `field` of the JSON object in `line`; nothing if the line is blank. The rest of the object is checked
/// and forgotten.
///
/// Errors    UsageError without file and line, which the caller adds
std::optional<std::string> jsonl_text(std::string_view line, const std::string& field);

}  // namespace trireme::data
