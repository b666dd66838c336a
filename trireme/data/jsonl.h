// One field of JSON objects that stand one a line.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trireme::data {

/// The string at `field` of the object that `line` is; nothing when the line is blank. The rest of the object is
/// checked, and not kept.
///
/// Errors    UsageError with the rule alone: the caller knows file and line
std::optional<std::string> jsonl_text(std::string_view line, const std::string& field);

}  // namespace trireme::data
