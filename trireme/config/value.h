// One value: what was given as text becomes a typed value under its setting's rules, or a sentence that says
// why not; and back. Writing is exact: what value_text writes, assign reads as the same value (names in lists may
// hold no comma; YAML quotes them).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/config/declaration.h"
#include "trireme/config/parse.h"

namespace trireme::config {

/// A value as it was met in a file, in the environment or on the command line.
struct Given {
  enum class Kind { scalar, list, null, section };  ///< section: a YAML map where a value belongs
  std::string key;
  Kind kind = Kind::scalar;
  std::string text;                ///< the scalar; for lists the text as it is shown
  std::vector<std::string> items;  ///< of a list
  bool quoted = false;             ///< "null" in quotes is a text
  Source source;
};

/// Why a value is refused: "train.max_steps wants a whole number, not 'many'", and a way out (may be empty).
struct Refusal {
  std::string headline;
  std::string hint;
};

/// Stores the value where `setting` points; nothing is stored when it is refused.
std::optional<Refusal> assign(const Setting& setting, const Given& given);

/// The value as YAML and the command line take it: "4", "[0.9, 0.95]", "30s", "auto", "null". Texts come plain,
/// without quotes.
std::string value_text(const Setting& setting);

/// A value that somebody might give, for messages: "my.txt", "3e9"; assign() takes it, and it is not what is absent.
std::string example_text(const Setting& setting);

/// True where an empty optional stands.
bool is_absent(const Setting& setting);

/// "whole number", "number", "true or false", "text", "time", "size", "two numbers", "choice", "name",
/// "list of names", "list of whole numbers".
std::string type_name(const Setting& setting);

/// What values are allowed, in words: "at least 1", "above 0, at most 1", "auto, 32-true or bf16-mixed"; may be empty.
std::string allowed_text(const Setting& setting);

/// Aliases of a choice: "ddp for no_shard; zero3, fsdp for full_shard"; empty where there are none.
std::string alias_text(const Setting& setting);

/// "a, b or c".
std::string one_of(const std::vector<std::string>& words);

}  // namespace trireme::config
