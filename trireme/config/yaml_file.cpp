#include "trireme/config/yaml_file.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>

#include "trireme/base/files.h"
#include "trireme/base/text.h"

namespace trireme::config {
namespace {

constexpr int kDeepest = 8;               // the tree has three levels; an alias may contain itself
constexpr size_t kMostBytesShown = 200;  // of a line, in messages

class Reader {
 public:
  Reader(std::string contents, std::string name, const Table& table, Problems& problems)
      : name_(std::move(name)), table_(table), problems_(problems), contents_(std::move(contents)) {
    for (size_t at = contents_.find('\n'); at != std::string::npos; at = contents_.find('\n', at + 1))
      line_starts_.push_back(at + 1);
  }

  std::vector<Given> read() {
    try {
      const YAML::Node tree =
          count_yaml_documents(contents_) < 2 ? YAML::Load(contents_) : YAML::Node(YAML::NodeType::Undefined);
      if (tree.IsMap()) {
        flatten(tree, "", 0);
      } else if (!tree.IsDefined() || !tree.IsNull()) {
        problems_.add(fmt::format("{} is not one tree of settings", name_), {at(YAML::Mark())},
                      "it should start like this: train: {max_steps: 100}; a second document (---) is not read");
      }
    } catch (const YAML::Exception& error) {
      refuse(error);
    }
    return std::move(found_);
  }

 private:
  // The parser describes its own states; the two usual causes can be found in the text.
  void refuse(const YAML::Exception& error) {
    const auto last =
        error.mark.is_null() ? 0 : std::min(static_cast<size_t>(error.mark.line) + 1, line_starts_.size());
    for (size_t i = 0; i < last; ++i) {
      const std::string_view line = line_at(i);
      const std::string_view indent = line.substr(0, std::min(line.find_first_not_of(" \t"), line.size()));
      if (indent.find('\t') == std::string_view::npos) continue;
      YAML::Mark mark = error.mark;
      mark.line = static_cast<int>(i);
      return problems_.add(fmt::format("{} is not valid YAML: line {} is indented with a tab", name_, i + 1),
                           {at(mark)}, "YAML is indented with spaces only, for instance two for each level");
    }
    const bool is_map = error.msg == YAML::ErrorMsg::END_OF_MAP || error.msg == YAML::ErrorMsg::MAP_VALUE ||
                        error.msg == YAML::ErrorMsg::END_OF_MAP_FLOW || error.msg == YAML::ErrorMsg::END_OF_SEQ;
    problems_.add(fmt::format("{} is not valid YAML: {}", name_, error.msg), {at(error.mark)},
                  is_map ? "settings of one group stand below each other, with the same indentation; name and value "
                           "are separated by a colon and a space"
                         : "");
  }

  std::string_view line_at(size_t number) const {
    const std::string_view rest = std::string_view(contents_).substr(line_starts_[number]);
    return rest.substr(0, rest.find('\n'));
  }

  Source at(const YAML::Mark& mark) const {
    if (mark.is_null()) return {Source::Kind::file, name_, ""};
    std::string_view line = line_at(std::min(static_cast<size_t>(mark.line), line_starts_.size() - 1));
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    line = line.substr(0, line.find_last_not_of(" \t\r") + 1);
    const std::string text = base::shortened(line, kMostBytesShown);
    return {Source::Kind::file, fmt::format("{}:{}", name_, mark.line + 1), text.empty() ? "(empty line)" : text};
  }

  void flatten(const YAML::Node& map, const std::string& prefix, int depth) {
    for (const auto& entry : map) {
      const Source source = at(entry.first.Mark());
      if (!entry.first.IsScalar() || entry.first.Scalar().empty() || entry.first.Scalar().size() > kMostBytesShown ||
          depth > kDeepest) {
        problems_.add(fmt::format("{} has a key that is no name", name_), {source}, "keys are names such as train");
        continue;
      }
      const std::string key = prefix.empty() ? entry.first.Scalar() : prefix + "." + entry.first.Scalar();
      Given given = given_of(key, entry.second, source);
      table_.translate(given);
      if (entry.second.IsMap() && table_.has_keys_below(given.key)) {
        flatten(entry.second, given.key, depth + 1);
      } else {
        keep(std::move(given));
      }
    }
  }

  // {path: P, weight: W} of data.mixture is "W P" on the command line.
  static std::string item_of(const YAML::Node& item) {
    if (item.IsScalar()) return item.Scalar();
    if (!item.IsMap() || !item["path"] || !item["path"].IsScalar()) return "?";
    const std::string path = item["path"].Scalar();
    if (item.size() == 1) return path;
    return item.size() == 2 && item["weight"] && item["weight"].IsScalar() ? item["weight"].Scalar() + " " + path : "?";
  }

  static Given given_of(const std::string& key, const YAML::Node& node, const Source& source) {
    Given given{.key = key, .source = source};
    if (node.IsScalar()) {
      given.text = node.Scalar();
      given.quoted = node.Tag() == "!";
    } else if (node.IsSequence()) {
      given.kind = Given::Kind::list;
      for (const YAML::Node& item : node) given.items.push_back(item_of(item));
      given.text = fmt::format("[{}]", base::join(given.items, ", "));
    } else {
      given.kind = node.IsMap() ? Given::Kind::section : Given::Kind::null;
      given.text = node.IsMap() ? "" : "null";
    }
    return given;
  }

  void keep(Given given) {
    const auto [first, fresh] = sources_.emplace(given.key, given.source);
    if (fresh) {
      found_.push_back(std::move(given));
    } else {
      problems_.add(fmt::format("{} is set twice in {}", given.key, name_), {first->second, given.source},
                    "keep one of the two lines");
    }
  }

  std::string name_;
  const Table& table_;
  Problems& problems_;
  std::string contents_;
  std::vector<size_t> line_starts_ = {0};
  std::vector<Given> found_;
  std::map<std::string, Source> sources_;
};

}  // namespace

std::vector<Given> read_yaml(std::string contents, const std::string& name, const Table& table, Problems& problems) {
  return Reader(std::move(contents), name, table, problems).read();
}

std::vector<Given> read_yaml_file(const std::filesystem::path& path, const Table& table, Problems& problems) try {
  return read_yaml(base::read_file_or_pipe(path, YamlLimits{}.bytes), path.string(), table, problems);
} catch (const base::FileError& error) {
  problems.add(error.what(), {},
               "--config takes the path of a YAML file of settings, for instance configs/austen.yaml");
  return {};
}

}  // namespace trireme::config
