#include "trireme/dialects/hydra_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "trireme/base/files.h"
#include "trireme/config/yaml_file.h"
#include "trireme/dialects/dialect.h"

namespace trireme::dialects {

using config::Given;
namespace fs = std::filesystem;

namespace {

constexpr std::string_view kGroups[] = {"model", "optimizer", "scheduler", "grpo", "generation", "training"};
constexpr std::string_view kOfRewards[] = {"num_generations", "num_iterations", "beta", "epsilon"};  // grpo's, as here

std::string folder_of(const std::string& path) { return fs::absolute(path).parent_path().filename().string(); }

// What stands before the keys of a file: what its comment "# @package NAME" says, else its group.
std::string package_of(std::string_view contents, const std::string& group) {
  constexpr std::string_view kWord = "@package";
  while (contents.starts_with('#')) {
    const std::string_view line = contents.substr(0, contents.find('\n'));
    if (const size_t at = line.find(kWord); at != std::string_view::npos) {
      std::string_view name = line.substr(at + kWord.size());
      name.remove_prefix(std::min(name.find_first_not_of(' '), name.size()));
      name = name.substr(0, name.find_first_of(" \r"));
      return name == "_global_" ? "" : name == "_group_" ? group : std::string(name);
    }
    contents.remove_prefix(std::min(line.size() + 1, contents.size()));
  }
  return group;
}

std::string group_of_folder(const std::string& path) {
  const std::string folder = folder_of(path);
  return std::ranges::find(kGroups, folder) != std::end(kGroups) ? folder : "";
}

// The two, of which `more` counts more.
std::vector<Given> over(std::vector<Given> base, std::vector<Given> more) {
  std::erase_if(base, [&](const Given& given) {
    return std::ranges::any_of(more, [&](const Given& other) { return other.key == given.key; });
  });
  base.insert(base.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  return base;
}

struct GroupFile {
  std::string group, path;
  bool overrides = false;  ///< it stands in the place of the group's file that was chosen before
};

// "{model: gemma3_1b}", "{override /model: gemma3_1b}" or "base", of the list in the file `path`.
std::optional<GroupFile> named_in_defaults(std::string_view item, const std::string& path) {
  std::string_view group, name = item;
  if (item.starts_with('{') && item.ends_with('}')) {
    item = item.substr(1, item.size() - 2);
    const size_t colon = item.find(": ");
    if (colon == std::string_view::npos) return std::nullopt;
    group = item.substr(0, colon);
    name = item.substr(colon + 2);
  }
  const bool overrides = group.starts_with("override ");
  for (const std::string_view word : {"override ", "optional "})
    if (group.starts_with(word)) group.remove_prefix(word.size());
  const fs::path here = fs::absolute(path).parent_path();
  std::vector<fs::path> folders = {here};
  if (group.starts_with('/')) {  // from the root, which the folder of an experiment lies in
    group.remove_prefix(1);
    folders.insert(folders.begin(), here.parent_path());
  }
  for (const fs::path& folder : folders) {
    const fs::path file = folder / std::string(group) / fmt::format("{}.yaml", name);
    const bool is_inside = fmt::format("{}/{}", group, name).find("..") == std::string::npos;
    if (is_inside && base::is_file(file))
      return GroupFile{std::string(group), file.lexically_normal().string(), overrides};
  }
  return std::nullopt;
}

void leave_out(std::vector<Given>& entries, const std::set<std::string>& groups) {
  std::erase_if(entries, [&](const Given& given) { return groups.contains(given.key.substr(0, given.key.find('.'))); });
}

// Each file is read once, as Hydra has it: `seen` are those that are read already. `overridden` gets the groups whose
// file is chosen here instead of by a file that names this one.
std::vector<Given> composed(std::vector<Given> own, const std::string& contents, const GroupFile& file,
                            std::set<std::string>& seen, std::set<std::string>& overridden,
                            config::Problems& problems) {
  std::vector<Given> before, after;
  bool is_after = false;
  for (const Given& entry : own) {
    if (entry.key != "defaults") continue;
    for (const std::string& item : entry.items) {
      is_after |= item == "_self_";
      const auto named = item == "_self_" ? std::nullopt : named_in_defaults(item, file.path);
      if (!named || !seen.insert(named->path).second) continue;
      const auto text = config::read_settings_file(named->path, problems, {entry.source}, "defaults names this file");
      if (!text) continue;
      std::set<std::string> replaced;
      std::vector<Given> more =
          composed(config::read_yaml_tree(*text, named->path, problems), *text, *named, seen, replaced, problems);
      leave_out(before, replaced);
      leave_out(after, replaced);
      std::vector<Given>& place = is_after ? after : before;
      place = over(std::move(place), std::move(more));
      if (named->overrides) overridden.insert(named->group);
      overridden.merge(replaced);
    }
  }
  const std::string package = package_of(contents, file.group);
  for (Given& entry : own)
    if (!package.empty() && entry.key != "defaults") entry.key = fmt::format("{}.{}", package, entry.key);
  return over(over(std::move(before), std::move(own)), std::move(after));
}

}  // namespace

bool is_of_hydra_group(const std::vector<Given>& entries, const std::string& contents, const std::string& path) {
  const std::string group = group_of_folder(path);
  if (group.empty() || package_of(contents, group) != group) return false;
  const auto known = std::ranges::count_if(entries, [&](const Given& entry) {
    const std::string key = fmt::format("{}.{}", group, entry.key);
    return std::ranges::find(hydra().rows, std::string_view(key), &Row::key) != hydra().rows.end() ||
           (group == "grpo" && std::ranges::find(kOfRewards, entry.key) != std::end(kOfRewards));
  });
  // Else it is a file of another system in a folder of this name; TRL's have much of grpo's.
  return group == "grpo" ? known == std::ssize(entries) : 2 * known > std::ssize(entries);
}

std::vector<Given> composed_by_hydra(std::vector<Given> entries, const std::string& contents, const std::string& path,
                                     std::vector<std::string>& others, config::Problems& problems) {
  const std::string itself = fs::absolute(path).lexically_normal().string();
  std::set<std::string> seen = {itself};
  const std::string group = is_of_hydra_group(entries, contents, path) ? group_of_folder(path) : "";
  std::set<std::string> overridden;
  std::vector<Given> all =
      composed(std::move(entries), contents, {.group = group, .path = path}, seen, overridden, problems);
  seen.erase(itself);
  others.assign(seen.begin(), seen.end());
  return all;
}

}  // namespace trireme::dialects
