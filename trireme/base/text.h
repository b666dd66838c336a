// Text for people: the nearest spelling of a mistyped name, lists, and numbers with their units as every line of output
// shows them ("412 MiB", "12,430", "2m41s"). units.h reads units.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace trireme::base {

/// Fewest insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`; no letter is changed
/// twice (optimal string alignment, the usual restriction of Damerau-Levenshtein). If they are more than `most`: some
/// number above it.
int edit_distance(std::string_view a, std::string_view b, int most = std::numeric_limits<int>::max());

/// The candidate closest to `name`, the first one if several are. Nothing if more than a third of its letters differ
/// (one letter may always differ), so that a hint is never absurd.
std::optional<std::string> nearest(std::string_view name, std::span<const std::string> candidates);

/// " (did you mean llama?)" of the nearest candidate, or nothing.
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

/// "a, b, c" for {a, b, c} and separator ", ".
std::string join(std::span<const std::string> parts, std::string_view separator);

/// `text`, cut to `most_bytes` between two characters and "..." if it is longer: for what a file says.
std::string shortened(std::string_view text, size_t most_bytes = 120);

/// What is wrong with a YAML file, in the words of a parser's exception, without the library's name.
std::string yaml_reason(std::string_view what);

/// A file's text without UTF-8's byte order mark, which some editors write at its beginning.
std::string_view without_byte_order_mark(std::string_view text);

/// "512 B", "4.0 KiB", "412 MiB", "1.40 GiB": three digits, powers of 1024.
std::string human_bytes(int64_t bytes);

/// "12,430", "-1,000": every digit, grouped by three.
std::string human_count(int64_t count);

/// "4.95 M", "8.03 B", "812": three digits, powers of 1000 (K, M, B, T).
std::string human_quantity(double quantity);

/// "0.4s", "41s", "2m41s", "3h07m", "2d04h"; "0.0s" for negative times, "?" for NaN and infinity.
std::string human_duration(double seconds);
inline std::string human_duration(std::chrono::duration<double> time) { return human_duration(time.count()); }

/// "1 rank", "2 ranks", "12,430 tokens".
std::string plural(int64_t count, std::string_view noun);

/// "60 or 72": the multiples of `unit` below and above `number`; only the upper one if the lower one is 0.
std::string near_multiples(int64_t number, int64_t unit);

/// Text for XML, between tags or in an attribute: &, <, > and " become entities, and control characters (except line
/// ends) become spaces.
std::string escape_xml(std::string_view text);

/// `word` as a POSIX shell reads it as one word: as it is if it is plain (letters beyond ASCII are), else in quotes.
/// For every command that a message advises.
std::string shell_quoted(std::string_view word);

/// Ends the message "there is no meta-llama/Llama-3.2-1B: ..." in places where other programs would download the model.
inline constexpr std::string_view kFetchFirst = "nothing is downloaded, so fetch it first and name where it lies";

/// The whole message where a model's folder is wanted and a file is named: "model.gguf is a file; make a model's folder
/// of it: trireme convert model.gguf OUT".
std::string make_a_folder_of(const std::string& file);

}  // namespace trireme::base
