#include "trireme/config/yaml_file.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/files.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/config/file_text.h"

namespace trireme::config {
namespace {

constexpr int kDeepest = 8;               // the tree has three levels; an alias may contain itself

class Reader {
 public:
  /// Without a table every map is one of keys.
  Reader(std::string contents, std::string name, const Table* table, Problems& problems)
      : table_(table), problems_(problems), text_(std::move(contents), std::move(name), problems) {}

  std::vector<Given> read() {
    try {
      const YAML::Node tree = count_yaml_documents(text_.contents()) < 2
                                  ? YAML::Load(keep_quoted_breaks(text_.contents()))
                                  : YAML::Node(YAML::NodeType::Undefined);
      if (tree.IsMap()) {
        flatten(tree, "", 0);
      } else if (!tree.IsDefined() || !tree.IsNull()) {
        problems_.add(fmt::format("{} is not one tree of settings", text_.name()), {at(YAML::Mark())},
                      "it should start like this: train: {max_steps: 100}; a second document (---) is not read");
      }
    } catch (const YAML::Exception& error) {
      refuse(error);
    }
    return text_.take();
  }

 private:
  // The parser describes its own states; the two usual causes can be found in the text.
  void refuse(const YAML::Exception& error) {
    const auto last = error.mark.is_null() ? 0 : std::min(static_cast<size_t>(error.mark.line) + 1, text_.num_lines());
    for (size_t i = 0; i < last; ++i) {
      const std::string_view line = text_.line(i);
      const std::string_view indent = line.substr(0, std::min(line.find_first_not_of(" \t"), line.size()));
      if (indent.find('\t') == std::string_view::npos) continue;
      YAML::Mark mark = error.mark;
      mark.line = static_cast<int>(i);
      return problems_.add(fmt::format("{} is not valid YAML: line {} is indented with a tab", text_.name(), i + 1),
                           {at(mark)}, "YAML is indented with spaces only, for instance two for each level");
    }
    const bool is_map = error.msg == YAML::ErrorMsg::END_OF_MAP || error.msg == YAML::ErrorMsg::MAP_VALUE ||
                        error.msg == YAML::ErrorMsg::END_OF_MAP_FLOW || error.msg == YAML::ErrorMsg::END_OF_SEQ;
    problems_.add(fmt::format("{} is not valid YAML: {}", text_.name(), base::yaml_reason(error.msg)), {at(error.mark)},
                  is_map ? "settings of one group stand below each other, with the same indentation; name and value "
                           "are separated by a colon and a space"
                         : "");
  }

  Source at(const YAML::Mark& mark) const {
    if (mark.is_null()) return {Source::Kind::file, text_.name(), ""};
    return text_.place(static_cast<size_t>(mark.line));
  }

  using Entries = std::vector<std::pair<YAML::Node, YAML::Node>>;

  static bool has_key(const Entries& entries, const YAML::Node& key) {
    return key.IsScalar() && std::ranges::any_of(entries, [&](const auto& entry) {
             return entry.first.IsScalar() && entry.first.Scalar() == key.Scalar();
           });
  }

  // The keys of a map, and those that its merge key (<<: *others) brings: of a map or a list of maps, the first counts,
  // and the map's own count more.
  static Entries entries_of(const YAML::Node& map, int depth) {
    Entries entries, merged;
    for (const auto& entry : map) {
      const YAML::Node& value = entry.second;
      const bool is_list =
          value.IsSequence() && std::all_of(value.begin(), value.end(), [](const auto& one) { return one.IsMap(); });
      const bool merges = entry.first.IsScalar() && entry.first.Scalar() == "<<" && entry.first.Tag() != "!";
      if (!merges || depth > kDeepest || !(value.IsMap() || is_list)) {
        entries.emplace_back(entry.first, value);
        continue;
      }
      const auto merge = [&](const YAML::Node& others) {
        for (auto& other : entries_of(others, depth + 1))
          if (!has_key(merged, other.first)) merged.push_back(std::move(other));
      };
      if (value.IsMap()) {
        merge(value);
      } else {
        for (const YAML::Node& others : value) merge(others);
      }
    }
    for (auto& other : merged)  // which has each key once
      if (!has_key(entries, other.first)) entries.push_back(std::move(other));
    return entries;
  }

  void flatten(const YAML::Node& map, const std::string& prefix, int depth) {
    std::map<std::string, Source> groups;
    for (const auto& entry : entries_of(map, depth)) {
      const Source source = at(entry.first.Mark());
      if (!entry.first.IsScalar() || entry.first.Scalar().empty() ||
          entry.first.Scalar().size() > FileText::kMostBytesShown || depth > kDeepest) {
        problems_.add(fmt::format("{} has a key that is no name", text_.name()), {source},
                      "keys are names such as train");
        continue;
      }
      const std::string key = prefix.empty() ? entry.first.Scalar() : prefix + "." + entry.first.Scalar();
      Given given = given_of(key, entry.second, source);
      if (table_ != nullptr) table_->translate(given);
      const bool has_keys = table_ == nullptr ? entry.second.size() > 0 : table_->has_keys_below(given.key);
      if (entry.second.IsMap() && has_keys) {
        if (const auto [first, is_new] = groups.emplace(key, source); !is_new)
          problems_.add(fmt::format("{} stands twice in {}", key, text_.name()), {first->second, source},
                        "put all of its settings into one group");
        flatten(entry.second, given.key, depth + 1);
      } else {
        text_.keep(std::move(given));
      }
    }
  }

  static constexpr const char* kNoItem = "?";

  // {path: P, weight: W} of data.mixture is "W P" on the command line. "2024 dump" alone is no weight with a path.
  std::string item_of(const YAML::Node& item, int depth = 0) const {
    if (item.IsScalar()) return text_of(item);
    if (item.IsNull() && depth > 0) return "null";
    if (item.IsSequence() && table_ == nullptr && depth < kDeepest) {  // [[4, 2], [fsdp, tp]]
      std::vector<std::string> items;
      for (const YAML::Node& inner : item) items.push_back(item_of(inner, depth + 1));
      return fmt::format("[{}]", base::join(items, ", "));
    }
    const bool is_part = item.IsMap() && item["path"] && item["path"].IsScalar() &&
                         (item.size() == 1 || (item.size() == 2 && item["weight"]));
    if (item.IsMap() && !is_part && table_ == nullptr && depth < kDeepest) {  // {override /model: gemma3_1b}
      std::vector<std::string> items;
      for (const auto& entry : item)
        items.push_back(fmt::format("{}: {}", item_of(entry.first, depth + 1), item_of(entry.second, depth + 1)));
      return fmt::format("{{{}}}", base::join(items, ", "));
    }
    if (!is_part) return kNoItem;
    const std::string path = item["path"].Scalar();
    const size_t space = path.find(' ');
    const bool looks_weighted = space != std::string::npos && base::parse_number(path.substr(0, space));
    if (item.size() == 1) return looks_weighted ? "./" + path : path;
    return item["weight"].IsScalar() ? item["weight"].Scalar() + " " + path : kNoItem;
  }

  static std::string text_of(const YAML::Node& scalar) {
    if (scalar.Tag() != "tag:yaml.org,2002:binary") return scalar.Scalar();
    const std::vector<unsigned char> bytes = YAML::DecodeBase64(scalar.Scalar());
    return {bytes.begin(), bytes.end()};
  }

  Given given_of(const std::string& key, const YAML::Node& node, const Source& source) const {
    Given given{.key = key, .source = source};
    if (node.IsScalar()) {
      given.text = text_of(node);
      given.quoted = node.Tag() == "!";
    } else if (node.IsSequence()) {
      given.kind = Given::Kind::list;
      for (const YAML::Node& item : node) {
        given.items.push_back(item_of(item));
        if (table_ != nullptr && given.items.back() == kNoItem && !item.IsScalar() && !(item.IsMap() && item["path"]))
          problems_.add(fmt::format("{} has an item that is {}", key,
                                    item.IsNull()  ? "nothing"
                                    : item.IsMap() ? "a map"
                                                   : "a list"),
                        {source},
                        key == "data.mixture"
                            ? "it takes paths, or {path: PATH, weight: NUMBER} for each of them"
                            : "items are texts and numbers; a text that YAML reads as something else stands in quotes");
      }
      given.text = fmt::format("[{}]", base::join(given.items, ", "));
    } else {
      given.kind = node.IsMap() ? Given::Kind::section : Given::Kind::null;
      given.text = node.IsMap() ? "" : "null";
    }
    return given;
  }

  const Table* table_;
  Problems& problems_;
  FileText text_;
};

}  // namespace

std::vector<Given> read_yaml(std::string contents, const std::string& name, const Table& table, Problems& problems) {
  return Reader(std::move(contents), name, &table, problems).read();
}

std::vector<Given> read_yaml_tree(std::string contents, const std::string& name, Problems& problems) {
  return Reader(std::move(contents), name, nullptr, problems).read();
}

std::optional<std::string> read_settings_file(const std::filesystem::path& path, Problems& problems,
                                              const std::vector<Source>& sources, std::string_view hint) try {
  return base::read_file_or_pipe(path, YamlLimits{}.bytes);
} catch (const base::FileError& error) {
  problems.add(error.what(), sources, hint);
  return std::nullopt;
}

}  // namespace trireme::config
