#include "trireme/config/parse.h"

#include <fmt/format.h>

#include <cstdlib>

#include "trireme/base/text.h"
#include "trireme/config/arguments.h"
#include "trireme/config/declaration.h"
#include "trireme/config/environment.h"
#include "trireme/config/hints.h"
#include "trireme/config/problems.h"
#include "trireme/config/value.h"
#include "trireme/config/yaml_file.h"

namespace trireme::config {

namespace {

// As a shell takes it.
std::string shell_word(const std::string& text) {
  const bool plain = text.find_first_of(" []'$&;|<>(){}*?!\"") == std::string::npos;
  return plain ? text : fmt::format("\"{}\"", text);
}

std::string_view leaf(std::string_view key) { return key.substr(key.rfind('.') + 1); }

class Parser {
 public:
  explicit Parser(const Overlay& overlay) : overlay_(overlay), table_(declare(settings_)) {
    for (const Setting& setting : table_) {
      provenance_[std::string(setting.key)] = {Source::Kind::built_in, "default", ""};
    }
    for (const auto& [key, text] : overlay.values) {
      const Setting* setting = find(table_, key);
      check_invariant(setting != nullptr, "a command's default names a setting");
      const Source source{Source::Kind::command, fmt::format("default of {}", overlay.command), ""};
      check_invariant(!assign(*setting, {.key = key, .text = text, .source = source}),
                      "a command's default is allowed");
      provenance_[key] = source;
    }
  }

  void read_environment() {
    for (const Setting& setting : table_) {
      const std::string name = environment_name(setting.key);
      const char* value = overlay_.environment ? overlay_.environment(name.c_str()) : std::getenv(name.c_str());
      if (value == nullptr) continue;
      const Source source{Source::Kind::environment, "environment", fmt::format("{}={}", name, value)};
      take({.key = std::string(setting.key), .text = value, .source = source});
    }
    for (const StrayVariable& stray : stray_variables(overlay_.environment ? overlay_.variables : own_variables()))
      problems_.add(fmt::format("{} in the environment is no setting", stray.name), {}, stray.hint);
  }

  void read_arguments(std::span<const std::string> arguments) {
    const auto is_flag = [this](const std::string& key) {
      const Setting* setting = find(table_, resolve(key));
      return setting != nullptr && type_name(*setting) == "true or false";
    };
    std::string first_positional;
    for (Argument& argument : split_arguments(arguments, is_flag)) {
      switch (argument.kind) {
        case Argument::Kind::help:
          help_ = true;
          break;
        case Argument::Kind::config:
          if (argument.has_value && !argument.given.text.empty()) {
            for (const Given& given : read_yaml_file(argument.given.text, problems_)) take(given);
          } else {
            problems_.add("--config needs the path of a YAML file", {argument.given.source}, "");
          }
          break;
        case Argument::Kind::positional:
          if (overlay_.takes_list)
            list_.push_back(argument.given.text);
          else
            take_positional(argument.given, first_positional);
          break;
        case Argument::Kind::setting:
          argument.given.key = resolve(argument.given.key);
          if (!argument.has_value) complete(argument);
          if (argument.has_value) take(argument.given);
          break;
      }
    }
  }

  ParsedSettings result() && {
    if (!help_) problems_.throw_if_any();
    return {std::move(settings_), std::move(provenance_), help_, std::move(list_)};
  }

 private:
  // The full key: of a command's own section first (generate: --prompt), then as it stands.
  std::string resolve(const std::string& key) const {
    const std::string canonical = canonical_key(key);
    const std::string inner = overlay_.section + "." + canonical;
    return !overlay_.section.empty() && find(table_, inner) != nullptr ? inner : canonical;
  }

  // --key stood alone: that means true for a true/false setting, and is an error for any other that exists.
  void complete(Argument& argument) {
    const Setting* setting = find(table_, argument.given.key);
    argument.has_value = true;
    if (setting == nullptr) return;  // take() says that there is no such setting
    if (type_name(*setting) == "true or false") {
      argument.given.text = "true";
      return;
    }
    argument.has_value = false;
    problems_.add(fmt::format("--{} needs a value", argument.given.key), {argument.given.source},
                  fmt::format("for instance --{}={}", argument.given.key, shell_word(example_text(*setting))));
  }

  void take_positional(const Given& given, std::string& first) {
    for (const std::string_view dash : {"\u2014", "\u2013", "\u2212"}) {  // as a text program writes "--"
      if (!given.text.starts_with(dash)) continue;
      problems_.add(fmt::format("'{}' begins with a dash that is not two hyphens", given.text), {},
                    fmt::format("type --{}", given.text.substr(dash.size())));
      return;
    }
    if (given.text.ends_with(".yaml") || given.text.ends_with(".yml")) {
      problems_.add(fmt::format("{} is a file of settings", given.text), {},
                    fmt::format("say --config {}", given.text));
      return;
    }
    if (overlay_.positional.empty() || !first.empty()) {
      const std::string what = overlay_.positional.empty()
                                   ? "it takes settings only"
                                   : fmt::format("{} is {} already", overlay_.positional, first);
      const std::string meant =
          overlay_.second.empty() ? "" : fmt::format("; for {} say --{}", overlay_.second, leaf(overlay_.second));
      problems_.add(fmt::format("what is '{}'?", given.text), {},
                    what + meant + "; settings are --name value or name=value, a value with spaces stands in quotes");
      return;
    }
    first = given.text;
    Given named = given;
    named.key = overlay_.positional;
    take(named);
  }

  void take(const Given& given) {
    const Setting* setting = find(table_, given.key);
    if (setting == nullptr) {
      refuse_key(given);
    } else if (const std::string_view owner = foreign_owner(given); !owner.empty()) {
      problems_.add(fmt::format("{} belongs to trireme {}", given.key, owner), {given.source},
                    fmt::format("trireme {} does not read it; leave it out", overlay_.command));
    } else if (const std::optional<Refusal> refusal = assign(*setting, given)) {
      problems_.add(refusal->headline, {given.source}, refusal->hint);
    } else {
      provenance_[given.key] = given.source;
    }
  }

  // A file or the environment may hold the settings of several commands; what is typed is meant for this one.
  std::string_view foreign_owner(const Given& given) const {
    const std::string_view self = std::string_view(overlay_.command).substr(0, overlay_.command.find(' '));
    if (given.source.kind != Source::Kind::command_line || self.empty() || self == "explain") return {};
    if (overlay_.reads_its_section_alone && group_of(given.key) != overlay_.section) return "pretrain";
    for (const Group& group : groups())
      if (group.name == group_of(given.key)) return group.command == self ? std::string_view() : group.command;
    return {};
  }

  // The true/false setting that no_pin, no-pin or launch.no_pin denies; empty: none.
  std::string negated(const std::string& key) const {
    const size_t dot = key.find(".no_");
    if (!key.starts_with("no_") && !key.starts_with("no-") && dot == std::string::npos) return "";
    const size_t begin = dot == std::string::npos ? 0 : dot + 1;
    const std::string positive = key.substr(0, begin) + key.substr(begin + 3);
    for (const std::string& name : {resolve(positive), positive}) {
      const Setting* setting = find(table_, name);
      if (setting != nullptr && type_name(*setting) == "true or false") return name;
    }
    return "";
  }

  void refuse_key(const Given& given) {
    for (const Group& group : groups()) {
      if (group.name.empty() || given.key != group.name) continue;
      problems_.add(fmt::format("{} is a group of settings and takes no value", given.key), {given.source},
                    hint_for(given.key + "."));
      return;
    }
    if (const std::string flag = negated(given.key); !flag.empty()) {
      problems_.add(fmt::format("unknown setting {}", given.key), {given.source}, fmt::format("say --{} false", flag));
      return;
    }
    if (const std::optional<std::string> reason = refusal_of(given.key)) {
      problems_.add(fmt::format("{} is not available", given.key), {given.source}, *reason);
    } else {
      problems_.add(fmt::format("unknown setting {}", given.key), {given.source}, hint_for(given.key));
    }
  }

  const Overlay& overlay_;
  Settings settings_;
  std::vector<Setting> table_;  // points into settings_
  std::map<std::string, Source> provenance_;
  Problems problems_;
  bool help_ = false;
  std::vector<std::string> list_;
};

}  // namespace

bool ParsedSettings::given(const std::string& key) const {
  const auto found = provenance.find(key);
  return found != provenance.end() && found->second.kind != Source::Kind::built_in &&
         found->second.kind != Source::Kind::command && found->second.kind != Source::Kind::checkpoint;
}

ParsedSettings parse(std::span<const std::string> arguments, const Overlay& overlay) {
  Parser parser(overlay);
  parser.read_environment();
  parser.read_arguments(arguments);
  return std::move(parser).result();
}

}  // namespace trireme::config
