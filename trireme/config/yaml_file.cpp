#include "trireme/config/yaml_file.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <map>
#include <sstream>

#include "trireme/base/files.h"
#include "trireme/base/text.h"
#include "trireme/config/declaration.h"

namespace trireme::config {

namespace {

constexpr int kDeepest = 8;  // the tree has three levels; an alias that holds itself has no end

struct IgnoreEvents : YAML::EventHandler {
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

class Reader {
 public:
  Reader(const std::filesystem::path& path, Problems& problems) : name_(path.string()), problems_(problems) {}

  std::vector<Given> read() {
    try {
      contents_ = base::read_file(name_);
      const YAML::Node tree = has_one_document() ? YAML::Load(contents_) : YAML::Node(YAML::NodeType::Undefined);
      if (tree.IsMap()) {
        flatten(tree, "", 0);
      } else if (!tree.IsDefined() || !tree.IsNull()) {
        problems_.add(fmt::format("{} is not one tree of settings", name_), {at(YAML::Mark())},
                      "it should start like this: train: {max_steps: 100}; a second document (---) is not read");
      }
    } catch (const YAML::Exception& error) {
      problems_.add(fmt::format("{} is not valid YAML: {}", name_, error.msg), {at(error.mark)}, "");
    } catch (const base::FileError& error) {
      problems_.add(error.what(), {}, "--config takes the path of a YAML file");
    }
    return std::move(found_);
  }

 private:
  Source at(const YAML::Mark& mark) const {
    if (mark.is_null()) return {Source::Kind::file, name_, ""};
    size_t start = 0;
    for (int line = 0; line < mark.line && start != std::string::npos; ++line) {
      const size_t end = contents_.find('\n', start);
      start = end == std::string::npos ? contents_.size() : end + 1;
    }
    std::string text = contents_.substr(start, contents_.find('\n', start) - start);
    text.erase(0, std::min(text.find_first_not_of(" \t"), text.size()));
    text.erase(text.find_last_not_of(" \t\r") + 1);
    return {Source::Kind::file, fmt::format("{}:{}", name_, mark.line + 1), text.empty() ? "(empty line)" : text};
  }

  // YAML::LoadAll never ends on a file that starts with a comma: it meets empty documents for ever.
  bool has_one_document() const {
    std::istringstream stream(contents_);
    YAML::Parser parser(stream);
    IgnoreEvents ignore;
    int documents = 0;
    while (documents < 2 && parser.HandleNextDocument(ignore)) ++documents;
    return documents < 2;
  }

  static bool has_settings_below(const std::string& key) {
    const std::string prefix = key + ".";
    for (const std::string& known : all_keys()) {
      if (known.compare(0, prefix.size(), prefix) == 0) return true;
    }
    return false;
  }

  void flatten(const YAML::Node& map, const std::string& prefix, int depth) {
    for (const auto& entry : map) {
      const Source source = at(entry.first.Mark());
      if (!entry.first.IsScalar() || depth > kDeepest) {
        problems_.add(fmt::format("{} has a key that is no name", name_), {source}, "keys are names such as train");
        continue;
      }
      const std::string key =
          canonical_key(prefix.empty() ? entry.first.Scalar() : prefix + "." + entry.first.Scalar());
      if (entry.second.IsMap() && has_settings_below(key)) {
        flatten(entry.second, key, depth + 1);
      } else {
        keep(given_of(key, entry.second, source));
      }
    }
  }

  static Given given_of(const std::string& key, const YAML::Node& node, const Source& source) {
    Given given{.key = key, .source = source};
    if (node.IsScalar()) {
      given.text = node.Scalar();
      given.quoted = node.Tag() == "!";
    } else if (node.IsSequence()) {
      given.kind = Given::Kind::list;
      for (const YAML::Node& item : node) given.items.push_back(item.IsScalar() ? item.Scalar() : "?");
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
  Problems& problems_;
  std::string contents_;
  std::vector<Given> found_;
  std::map<std::string, Source> sources_;
};

}  // namespace

std::vector<Given> read_yaml_file(const std::filesystem::path& path, Problems& problems) {
  return Reader(path, problems).read();
}

}  // namespace trireme::config
