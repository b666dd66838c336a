#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trireme/base/named_file.h"
#include "trireme/config/problems.h"
#include "trireme/config/value.h"
#include "trireme/settings/validate.h"

namespace trireme {
namespace fs = std::filesystem;

namespace {

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// The part of the path that is there: the path itself, or one of its folders.
fs::path what_is_there(const fs::path& path) {
  fs::path there = fs::absolute(path).lexically_normal();
  while (!is_there(there) && there.has_relative_path()) there = there.parent_path();
  return there;
}

bool is_inside(const fs::path& path, const fs::path& folder) {
  const auto inside = fs::absolute(path).lexically_normal().lexically_relative(fs::absolute(folder).lexically_normal());
  return !inside.empty() && *inside.begin() != "..";
}

// What no file may replace: /dev/null, a pipe, a link to an open file (/dev/stdout).
bool is_device(const fs::path& path) {
  std::error_code ignored;
  const std::string folder = fs::absolute(path).lexically_normal().parent_path().string();
  return fs::is_other(fs::status(path, ignored)) || folder == "/dev" || folder == "/dev/fd" ||
         folder.starts_with("/proc/");
}

// A file that is not there counts by its path.
bool is_same_file(const fs::path& a, const fs::path& b) {
  std::error_code ignored;
  const auto place = [](const fs::path& path) { return fs::absolute(base::named_file(path)).lexically_normal(); };
  return fs::equivalent(a, b, ignored) || place(a) == place(b);
}

struct NamedFile {
  std::string_view key;
  bool is_result = false;
  fs::path path;
  std::string_view begins = {};  ///< Rules::result_begins
};

// The first character of a file that is no space; none: there is no such file, or it is empty.
std::optional<char> first_of(const fs::path& file) {
  std::ifstream in(file);
  char first = 0;
  return in >> first ? std::optional(first) : std::nullopt;
}

// Whether a file of a model's folder is part of the model. An earlier result may lie beside them.
bool is_part_of_a_model(const fs::path& file) {
  constexpr std::array<std::string_view, 8> kEndings = {".safetensors", ".index.json", ".bin",   ".pth",
                                                        ".gguf",        ".model",      ".jinja", ".distcp"};
  constexpr std::array<std::string_view, 13> kNames = {"config.json",
                                                       "generation_config.json",
                                                       "adapter_config.json",
                                                       "manifest.json",
                                                       "trireme_state.json",
                                                       "settings.yaml",
                                                       "tokenizer.json",
                                                       "tokenizer_config.json",
                                                       "special_tokens_map.json",
                                                       "added_tokens.json",
                                                       "vocab.json",
                                                       "vocab.txt",
                                                       "merges.txt"};
  const std::string name = file.filename().string();
  return std::ranges::find(kNames, name) != kNames.end() ||
         std::ranges::any_of(kEndings, [&](std::string_view ending) { return name.ends_with(ending); });
}

// What `target` is part of, if a result must not take its place: "a file of the model in ..."; "": of nothing.
std::string what_holds(const fs::path& target, const std::vector<NamedFile>& named) {
  if (!is_there(target)) return "";
  const fs::path folder = fs::absolute(target).lexically_normal().parent_path();
  const auto has = [&](const char* name) { return is_there(folder / name); };
  if (is_part_of_a_model(target) && (has("config.json") || has("adapter_config.json") || has("manifest.json")))
    return "a file of the model in " + folder.string();
  constexpr std::array<std::string_view, 2> kOfRuns = {"metrics.jsonl", "run.json"};
  if (has("run.json") && std::ranges::find(kOfRuns, target.filename().string()) != kOfRuns.end())
    return "a file of the run in " + folder.string();
  for (const NamedFile& other : named)
    if ((other.key.ends_with("data_path") || other.key == "evaluate.text") && is_folder(other.path) &&
        is_inside(target, other.path))
      return fmt::format("a file in the folder of {}", other.key);
  return "";
}

std::vector<std::string> texts_of(const config::Setting& setting) {
  if (auto* const* text = std::get_if<std::string*>(&setting.value)) return {**text};
  if (auto* const* text = std::get_if<std::optional<std::string>*>(&setting.value))
    return *text && (*text)->has_value() ? std::vector<std::string>{***text} : std::vector<std::string>();
  if (auto* const* list = std::get_if<std::vector<std::string>*>(&setting.value)) return **list;
  if (auto* const* list = std::get_if<std::optional<std::vector<std::string>>*>(&setting.value))
    return (*list)->value_or(std::vector<std::string>());
  return {};
}

// The files that settings may name: texts, and what stands behind NAME= in lists.
std::vector<NamedFile> named_files(const std::vector<config::Section>& sections) {
  std::vector<NamedFile> named;
  for (const config::Section& section : sections)
    for (const config::Setting& setting : section.rows)
      for (const std::string& text : texts_of(setting)) {
        if (!text.empty()) named.push_back({setting.key, setting.rules.writes_file, text, setting.rules.result_begins});
        const size_t behind = text.find('=') + 1;
        if (behind > 0 && behind < text.size()) named.push_back({setting.key, false, text.substr(behind)});
      }
  return named;
}

// Results replace the file that they are written to. `made`: a folder that will be there by then, or none.
void check_results(const std::vector<config::Section>& sections, const fs::path& made, config::Problems& problems) {
  const std::vector<NamedFile> named = named_files(sections);
  for (const NamedFile& result : named) {
    if (!result.is_result) continue;
    const fs::path target = base::named_file(result.path), folder = fs::absolute(target).parent_path();
    const std::string what = fmt::format("{} {}", result.key, result.path.string());
    const auto other = std::ranges::find_if(named, [&](const NamedFile& file) {
      // Of two files of results, the first one is told.
      return file.key != result.key && !(file.is_result && file.key < result.key) &&
             is_same_file(file.path, result.path);
    });
    if (result.path == "-")
      problems.add(what + " is not standard output: results take the place of a file", {},
                   "name a file, for instance result.json");
    else if (is_folder(result.path))
      problems.add(what + " is a folder", {}, "name a file in it");
    else if (is_device(result.path) || is_device(target))
      problems.add(what + " is a device or a pipe, and results take the place of a file", {},
                   "name a file, for instance result.json");
    else if (!is_folder(folder) && (made.empty() || !is_inside(folder, made)))
      problems.add(fmt::format("{} cannot be written: there is no folder {}", what, folder.string()), {},
                   "make the folder first, or name a file in another one");
    else if (is_folder(folder) && ::access(folder.c_str(), W_OK | X_OK) != 0)
      problems.add(fmt::format("{} cannot be written: {}", what, std::strerror(errno)), {},
                   "name a file in another folder");
    else if (other != named.end())
      problems.add(fmt::format("{} is the file of {}, too", what, other->key), {},
                   "one would be written over the other; name another file");
    else if (const std::string held = what_holds(target, named); !held.empty())
      problems.add(fmt::format("{} is {}", what, held), {},
                   "results take the place of a file; name one in another folder");
    else if (const auto first = first_of(target); first && !result.begins.empty() && target.extension() != ".txt" &&
                                                  result.begins.find(*first) == std::string_view::npos)
      problems.add(what + " holds something else than an earlier result", {},
                   "results take the place of a file; name another one, or remove it");
  }
}

}  // namespace

void validate_places(const Settings& s) {
  config::Problems problems;
  if (s.out_dir.find_first_not_of(" \t\n") == std::string::npos)
    problems.add("out_dir is a name of blanks", {}, "name a folder, for instance --out_dir out/mine");
  else if (const fs::path there = what_is_there(s.out_dir); !is_folder(there))
    problems.add(fmt::format("out_dir {} cannot be a folder: {} is a file", s.out_dir, there.string()), {},
                 "name a folder, for instance --out_dir out/mine; it is made where it is missing");
  Settings copy = s;
  check_results(declare(copy).sections(), s.out_dir, problems);
  if (s.offload.uses(schedule::Tier::disk))
    problems.add_if(schedule::check_offload_folder(s.offload.path.value_or(what_is_there(s.out_dir).string())));
  problems.throw_if_any();
}

void validate_out_dir(const std::string& out_dir) {
  const fs::path there = what_is_there(out_dir);
  if (::access(there.c_str(), W_OK | X_OK) == 0) return;
  config::Problems problems;
  problems.add(
      fmt::format("out_dir {}: nothing can be written in {}: {}", out_dir, there.string(), std::strerror(errno)), {},
      "name a folder in which files can be made, for instance --out_dir out/mine");
  problems.throw_if_any();
}

void validate_places(const std::vector<config::Section>& own) {
  config::Problems problems;
  check_results(own, {}, problems);
  problems.throw_if_any();
}

}  // namespace trireme
