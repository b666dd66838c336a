// The JSON of one record of a data file. Fields that nobody reads may hold anything, so a number that no double holds
// (1e999) is read as 0 and refuses no record. A key that stands twice in an object is refused: readers differ in which
// value they take.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::data {

/// Errors    UsageError naming `place`: not JSON (with the byte), not UTF-8, no object, a key twice
nlohmann::json parse_record_json(std::string_view text, const std::string& place);

/// `text` with 0 and spaces for each number that no double holds; nothing if there is none.
std::optional<std::string> without_huge_numbers(std::string_view text);

/// "this is not JSON (byte 14 of the record)", or what is wrong with its characters. `byte` 0: unknown.
std::string not_a_record(std::string_view text, size_t byte);

/// "question, answer": the keys of a record, for messages; the first few.
template <typename Json>
std::string keys_of(const Json& record);

/// Whether a record has two replies to one prompt, and what is said of it where none is wanted.
template <typename Json>
bool is_pair(const Json& record) {
  return record.contains("chosen") && record.contains("rejected");
}
inline constexpr const char* kOfPairs =
    "this is a pair of replies (chosen, rejected), from which trireme finetune_dpo learns";

}  // namespace trireme::data
