// Turns text into a typed value under its setting's rules, or says why not. Turns a value into text again. Writing is
// exact: assign reads what value_text writes as the same value. (Names in lists must not contain a comma; YAML quotes
// them.)
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/config/declaration.h"
#include "trireme/config/given.h"

namespace trireme::config {

/// Stores the value where `setting` points, unless it is refused.
std::optional<Refusal> assign(const Setting& setting, const Given& given);

/// The bounds of a rule for a number that no setting holds: a program's own. In the words of assign().
std::optional<Refusal> check_number(std::string_view key, const Rules& rules, double value);

/// The value as YAML and the command line take it: "4", "[0.9, 0.95]", "30s", "auto", "null". Texts have no quotes.
std::string value_text(const Setting& setting);

/// A value for messages: "my.txt", "3e9". assign() takes it, and it does not mean "absent".
std::string example_text(const Setting& setting);

/// True for an empty optional, or the choice that means the same.
bool is_absent(const Setting& setting);

/// "whole number", "number", "true or false", "text", "time", "size", "two numbers", "choice", "name",
/// "list of names", "list of whole numbers".
std::string type_name(const Setting& setting);

/// The allowed values in words: "at least 1", "above 0, at most 1", "auto, 32-true or bf16-mixed"; may be empty.
std::string allowed_text(const Setting& setting);

/// Aliases of a choice: "ddp for no_shard; zero3, fsdp for full_shard"; may be empty.
std::string alias_text(const Setting& setting);

/// "a, b or c".
std::string one_of(const std::vector<std::string>& words);

}  // namespace trireme::config
