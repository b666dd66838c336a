#include "trireme/base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

namespace trireme::base {

int edit_distance(std::string_view a, std::string_view b, int most) {
  const size_t columns = b.size() + 1;
  std::vector<int> rows(3 * columns);  // of i, i - 1 and i - 2, in turn
  const auto at = [&](size_t i, size_t j) -> int& { return rows[i % 3 * columns + j]; };
  for (size_t j = 0; j < columns; ++j) at(0, j) = static_cast<int>(j);
  int least = 0;
  for (size_t i = 1; i <= a.size(); ++i) {
    const int least_before = least;
    least = at(i, 0) = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      int best = std::min(at(i - 1, j), at(i, j - 1)) + 1;
      best = std::min(best, at(i - 1, j - 1) + (a[i - 1] == b[j - 1] ? 0 : 1));
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) best = std::min(best, at(i - 2, j - 2) + 1);
      at(i, j) = best;
      least = std::min(least, best);
    }
    if (least > most && least_before > most) return least;  // later rows are no less
  }
  return at(a.size(), b.size());
}

std::optional<std::string> nearest(std::string_view name, std::span<const std::string> candidates) {
  std::optional<std::string> best;
  int best_distance = 0;
  for (const std::string& candidate : candidates) {
    const int allowed = std::max(1, static_cast<int>(candidate.size()) / 3);
    if (std::abs(std::ssize(name) - std::ssize(candidate)) > allowed) continue;  // a name may be of any length
    const int distance = edit_distance(name, candidate, allowed);
    if (distance > allowed || (best && distance >= best_distance)) continue;
    best = candidate;
    best_distance = distance;
  }
  return best;
}

std::string did_you_mean(std::string_view name, std::span<const std::string> candidates) {
  const auto near = nearest(name, candidates);
  return near ? fmt::format(" (did you mean {}?)", *near) : "";
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

namespace {

// Three digits: 1.40, 12.3, 412.
std::string three_digits(double value) {
  const double size = std::abs(value);
  return fmt::format("{:.{}f}", value, size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}

// Divides by `base` until the printed number is below it: 1023.9 KiB is printed as 1.00 MiB.
template <size_t N>
std::string scaled(double value, double base, const std::array<const char*, N>& units) {
  size_t unit = 0;
  while (std::abs(value) >= base - 0.5 && unit + 1 < N) {
    value /= base;
    ++unit;
  }
  return fmt::format("{}{}", unit == 0 ? fmt::format("{:.0f}", value) : three_digits(value), units[unit]);
}

}  // namespace

std::string shortened(std::string_view text, size_t most_bytes) {
  if (text.size() <= most_bytes) return std::string(text);
  size_t end = most_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

std::string yaml_reason(std::string_view what) {
  constexpr std::string_view kName = "yaml-cpp: ";
  std::string reason(what.starts_with(kName) ? what.substr(kName.size()) : what);
  constexpr std::string_view kTooDeep = "bad file";  // what its guard of the depth says
  if (reason.ends_with(kTooDeep))
    reason.replace(reason.size() - kTooDeep.size(), kTooDeep.size(), "it nests too deeply");
  return reason;
}

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  return text.starts_with(kMark) ? text.substr(kMark.size()) : text;
}

std::string human_bytes(int64_t bytes) {
  static constexpr std::array kUnits = {" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
  return scaled(static_cast<double>(bytes), 1024.0, kUnits);
}

std::string human_quantity(double quantity) {
  static constexpr std::array kUnits = {"", " K", " M", " B", " T"};
  if (std::abs(quantity) >= 1e18) return fmt::format("{:.3g}", quantity);
  return scaled(quantity, 1000.0, kUnits);
}

std::string human_count(int64_t count) {
  std::string digits = fmt::format("{}", count);
  const size_t first = count < 0 ? 1 : 0;
  for (size_t place = digits.size(); place > first + 3; place -= 3) digits.insert(place - 3, 1, ',');
  return digits;
}

std::string human_duration(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  seconds = std::max(seconds, 0.0);
  if (seconds < 9.95) return fmt::format("{:.1f}s", seconds);
  if (seconds >= 1e15) return fmt::format("{:.3g}d", seconds / 86400);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{}h{:02}m", whole / 3600, whole % 3600 / 60);
  return fmt::format("{}d{:02}h", whole / 86400, whole % 86400 / 3600);
}

std::string plural(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", human_count(count), noun, count == 1 ? "" : "s");
}

std::string near_multiples(int64_t number, int64_t unit) {
  const int64_t below = number / unit * unit;
  return below == 0 ? fmt::format("{}", unit) : fmt::format("{} or {}", below, below + unit);
}

std::string shell_quoted(std::string_view word) {
  const auto is_plain = [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 128 || std::isalnum(byte) != 0 || std::string_view("_-+=./:,@%").find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), is_plain)) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) c == '\'' ? quoted += "'\\''" : quoted += c;
  return quoted + "'";
}

std::string make_a_folder_of(const std::string& file) {
  if (file.ends_with(".safetensors"))
    return fmt::format("{} is one safetensors file: name its folder, where config.json is", file);
  std::string lower = file;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::string magic(4, ' ');
  std::ifstream(file, std::ios::binary).read(magic.data(), std::ssize(magic));
  if (lower.ends_with(".json")) return fmt::format("{} is one file of a model's folder: name the folder", file);
  for (const std::string_view end : {".gguf", ".pth", ".pt", ".bin", ".ckpt"})
    if (lower.ends_with(end) || magic == "GGUF")
      return fmt::format("{} is a file; make a model's folder of it: trireme convert {} OUT", file, shell_quoted(file));
  return fmt::format("{} is a file, and a model is a folder with config.json and weights: name that", file);
}

std::string escape_xml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const size_t special = std::string_view("&<>\"").find(c);
    if (special != std::string_view::npos)
      out += std::array{"&amp;", "&lt;", "&gt;", "&quot;"}[special];
    else
      out += static_cast<unsigned char>(c) >= 0x20 || c == '\n' ? c : ' ';
  }
  return out;
}

}  // namespace trireme::base
