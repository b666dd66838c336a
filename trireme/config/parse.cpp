#include "trireme/config/parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/config/arguments.h"
#include "trireme/config/hints.h"
#include "trireme/config/problems.h"
#include "trireme/config/value.h"
#include "trireme/config/yaml_file.h"

namespace trireme::config {
namespace {

// By its name, in the place of a model. A model's own config.json is none.
bool is_json_of_settings(const std::filesystem::path& path) {
  std::error_code ignored;
  return path.extension() == ".json" && path.filename() != "config.json" &&
         !std::filesystem::is_directory(path, ignored);
}

std::string_view leaf(std::string_view key) { return key.substr(key.rfind('.') + 1); }

class Parser {
 public:
  Parser(const Overlay& overlay, const Table& table) : overlay_(overlay), table_(table) {
    for (const std::string& key : table.keys()) parsed_.provenance[key] = {Source::Kind::built_in, "default", ""};
    set_defaults(overlay, table_);
    for (const auto& [key, text] : overlay.values)
      parsed_.provenance[key] = {Source::Kind::command, fmt::format("default of {}", overlay.command), ""};
  }

  void read_environment() {
    const auto settings = std::span(table_.sections()).subspan(overlay_.own.size());
    if (settings.empty()) return;
    for (const Section& section : settings) read_environment(section);
    for (const StrayVariable& stray :
         stray_variables(table_, overlay_.environment ? overlay_.variables : own_variables()))
      problems_.add(fmt::format("{} in the environment is no setting", stray.name), {}, stray.hint);
  }

  void read_arguments(std::span<const std::string> arguments) {
    const auto is_flag = [this](const std::string& key) {
      const Setting* setting = table_.find(resolve(key));
      if (setting == nullptr) return overlay_.others != nullptr && overlay_.others->is_flag(key);
      return type_name(*setting) == "true or false";
    };
    std::string first_positional;
    std::vector<Argument> split = split_arguments(arguments, is_flag, overlay_.takes_rest);
    for (const Argument& argument : split)
      if (argument.kind == Argument::Kind::config_dialect) dialect_ = argument.given.text;
    for (Argument& argument : split) {
      ++position_;
      switch (argument.kind) {
        case Argument::Kind::help:
          parsed_.help = true;
          break;
        case Argument::Kind::config:
          if (argument.has_value && !argument.given.text.empty())
            take_file(argument.given.text, dialect_);
          else
            problems_.add("--config needs the path of a YAML file", {argument.given.source}, "");
          break;
        case Argument::Kind::config_dialect:
          if (!argument.has_value)
            problems_.add("--config_dialect needs the name of a system", {argument.given.source}, "");
          break;
        case Argument::Kind::positional:
          if (overlay_.takes_list || overlay_.takes_rest)
            parsed_.list.push_back(argument.given.text);
          else
            take_positional(argument.given, first_positional);
          break;
        case Argument::Kind::setting:
          if (const std::string dialect = file_option(argument); !dialect.empty()) {
            if (argument.has_value) take_file(argument.given.text, dialect);
            break;  // DeepSpeed's --deepspeed alone says that a file follows
          }
          if (!argument.has_value) complete(argument);
          if (argument.has_value) take_typed(argument.given);
          break;
      }
    }
    foresee();
    for (auto& [file, position] : foreign_) take_foreign(file, position);
    for (ForeignFile& words : foreign_words_) take_foreign(words, position_ + 1);
  }

  void take_inherited() {
    if (!overlay_.inherited || parsed_.help) return;
    for (const Given& given : overlay_.inherited(parsed_)) take(given);
  }

  Parsed result() && {
    if (!parsed_.help && !overlay_.passes_over_mistakes) problems_.throw_if_any();
    return std::move(parsed_);
  }

 private:
  void read_environment(const Section& section) {
    for (const Setting& setting : section.rows) {
      const std::string name = environment_name(setting.key);
      const char* value = overlay_.environment ? overlay_.environment(name.c_str()) : std::getenv(name.c_str());
      if (value == nullptr) continue;
      const Source source{Source::Kind::environment, "environment", fmt::format("{}={}", name, value)};
      take({.key = std::string(setting.key), .text = value, .source = source});
    }
  }

  // With the full key: first that of the command's own section (generate: --prompt), else the key as given.
  Given resolved(Given given) const {
    table_.translate(given);
    if (overlay_.section.empty()) return given;
    Given inner = given;
    inner.key = overlay_.section + "." + given.key;
    table_.translate(inner);
    return table_.find(inner.key) != nullptr ? inner : given;
  }

  std::string resolve(const std::string& key) const { return resolved({.key = key, .source = {}}).key; }

  // --key without a value: it means true for a true/false setting, and is an error for any other setting.
  void complete(Argument& argument) {
    const std::string key = resolve(argument.given.key);
    const Setting* setting = table_.find(key);
    argument.has_value = true;
    if (setting == nullptr) {  // take() says that there is no such setting
      if (overlay_.others != nullptr && overlay_.others->is_flag(argument.given.key)) argument.given.text = "true";
      return;
    }
    if (type_name(*setting) == "true or false") {
      argument.given.text = "true";
      return;
    }
    argument.has_value = false;
    problems_.add(fmt::format("--{} needs a value", key), {argument.given.source},
                  fmt::format("for instance --{}={}", key, base::shell_quoted(example_text(*setting))));
  }

  void take_positional(const Given& given, std::string& first) {
    for (const std::string_view dash : {"\u2014", "\u2013", "\u2212"}) {  // text programs write "--" as one of these
      if (!given.text.starts_with(dash)) continue;
      problems_.add(fmt::format("'{}' begins with a dash that is not two hyphens", given.text), {},
                    fmt::format("type --{}", given.text.substr(dash.size())));
      return;
    }
    const bool may_be_model = overlay_.positional == "model" && first.empty();
    if (given.text.ends_with(".yaml") || given.text.ends_with(".yml") ||
        (may_be_model && is_json_of_settings(given.text))) {
      problems_.add(fmt::format("{} is a file of settings", given.text), {},
                    fmt::format("say --config {}", base::shell_quoted(given.text)));
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

  // A file of settings: Trireme's own counts at once, another system's at the end.
  void take_file(const std::string& path, const std::string& dialect) {
    const std::optional<std::string> contents =
        dialect.empty()
            ? read_settings_file(path, problems_)
            : read_settings_file(path, problems_, {}, fmt::format("name a file of {} that is there", dialect));
    if (!contents) return;
    parsed_.files.push_back(path);
    std::optional<ForeignFile> foreign;
    const int known = problems_.count();
    if (overlay_.others != nullptr) foreign = overlay_.others->recognise(*contents, path, dialect, problems_);
    if (foreign && foreign->entries.empty() && problems_.count() > known) return;  // what it lacks is no mistake
    if (foreign) {
      foreign_.emplace_back(*std::move(foreign), position_);
    } else {
      for (const Given& given : read_yaml(*contents, path, table_, problems_)) take(given);
    }
  }

  // The dialect of --deepspeed_config FILE; empty: another setting.
  std::string file_option(const Argument& argument) const {
    if (overlay_.others == nullptr || table_.find(argument.given.key) != nullptr) return "";
    return std::string(overlay_.others->dialect_of_file_option(argument.given.key));
  }

  void take_typed(const Given& typed) {
    const Given given = resolved(typed);
    if (is_of_training(given.key)) return refuse_of_training(given);
    const std::string_view dialect = overlay_.others == nullptr || table_.find(given.key) != nullptr
                                         ? std::string_view()
                                         : overlay_.others->dialect_of(given.key);
    if (dialect.empty() || !foreign_owner(given).empty()) return take(given);
    const auto same = std::find_if(foreign_words_.begin(), foreign_words_.end(),
                                   [&](const ForeignFile& words) { return words.dialect == dialect; });
    if (same != foreign_words_.end())
      same->entries.push_back(given);
    else
      foreign_words_.push_back({std::string(dialect), std::string(ForeignFile::kCommandLine), {given}});
  }

  // What a file's keys mean may depend on ranks, rates and lengths that another system's file says, which is read after
  // it. So all are read once for their settings. Mistakes are told when they are read again.
  void foresee() {
    if (foreign_.size() + foreign_words_.size() < 2) return;
    Problems untold;
    std::vector<Foreseen> defaults;
    const auto look = [&](ForeignFile& file, size_t position) {
      file.later = later_than(position);
      const ForeignSettings found = overlay_.others->read(file, table_, parsed_, overlay_.command, untold);
      for (const Given& given : found.settings) foreseen_.push_back({given, position});
      for (const Given& given : found.defaults) defaults.push_back({given, position});
    };
    for (auto& [file, position] : foreign_) look(file, position);
    for (ForeignFile& words : foreign_words_) look(words, position_ + 1);
    const auto has = [](const std::vector<Foreseen>& all, const std::string& key) {
      return std::ranges::any_of(all, [&](const Foreseen& one) { return one.given.key == key; });
    };
    std::vector<Foreseen> counting;  // the first default of a key, if nothing gives it
    for (const Foreseen& one : defaults)
      if (!parsed_.given(one.given.key) && !has(foreseen_, one.given.key) && !has(counting, one.given.key))
        counting.push_back(one);
    foreseen_.insert(foreseen_.end(), counting.begin(), counting.end());
  }

  // What counts more than a file at this position.
  ForeignFile::Later later_than(size_t position) const {
    ForeignFile::Later later;
    const auto stands_after = [&](const std::string& key, size_t place) {
      const auto at = given_at_.find(key);
      return parsed_.provenance.at(key).kind == Source::Kind::command_line ||
             (at != given_at_.end() && at->second > place);
    };
    for (const auto& [key, source] : parsed_.provenance)
      if (stands_after(key, position)) {
        const Setting& setting = *table_.find(key);
        later[key] = is_absent(setting) ? std::nullopt : std::optional(value_text(setting));
      }
    for (const auto& [given, at] : foreseen_)  // in the order of the files
      if (at > position && parsed_.provenance.contains(given.key) && !stands_after(given.key, at))
        later[given.key] = given.kind == Given::Kind::null ? std::nullopt : std::optional(given.text);
    return later;
  }

  // Later files count more than earlier ones, and settings on the command line more than all files.
  void take_foreign(ForeignFile& file, size_t position) {
    file.later = later_than(position);
    const ForeignSettings found = overlay_.others->read(file, table_, parsed_, overlay_.command, problems_);
    std::string refused;  // a word may become several settings
    for (const Given& given : found.settings) {
      if (file.name == ForeignFile::kCommandLine && is_of_training(given.key)) {
        if (std::exchange(refused, given.source.text) != given.source.text) refuse_of_training(given);
        continue;
      }
      const auto before = given_at_.find(given.key);
      if (parsed_.typed(given.key) || (before != given_at_.end() && before->second > position)) continue;
      take(given, position);
    }
    for (const Given& given : found.defaults)
      if (!parsed_.given(given.key)) take(given, position);
    parsed_.accounts.insert(parsed_.accounts.end(), found.accounts.begin(), found.accounts.end());
    parsed_.files.insert(parsed_.files.end(), found.files.begin(), found.files.end());
  }

  void take(const Given& given) { take(given, position_); }

  void take(const Given& given, size_t position) {
    const Setting* setting = table_.find(given.key);
    if (setting == nullptr) {
      refuse_key(given);
    } else if (const std::string_view owner = foreign_owner(given); !owner.empty()) {
      problems_.add(fmt::format("{} belongs to trireme {}", given.key, owner), {given.source},
                    fmt::format("trireme {} does not read it; leave it out", overlay_.command));
    } else if (const std::optional<Refusal> refusal = assign(*setting, given)) {
      problems_.add(refusal->headline, {given.source},
                    given.text.starts_with('{') ? without_map(*setting) : refusal->hint);
    } else {
      parsed_.provenance[given.key] = given.source;
      given_at_[given.key] = position;
    }
  }

  // '{"class_path": "torch.optim.AdamW", "init_args": {"lr": 1e-4}}' is a value of jsonargparse, and none here.
  std::string without_map(const Setting& setting) const {
    std::string text =
        fmt::format("a map is given key by key, for instance --{} {}", setting.key, example_text(setting));
    const std::string below = std::string(setting.key) + ".";
    const auto first =
        std::ranges::find_if(table_.keys(), [&](const std::string& key) { return key.starts_with(below); });
    if (first != table_.keys().end()) text += fmt::format(" --{} {}", *first, example_text(*table_.find(*first)));
    return text;
  }

  // A setting of a group that only training reads, where the command does not train.
  bool is_of_training(const std::string& key) const {
    return table_.find(key) != nullptr &&
           (std::ranges::count(overlay_.unread_keys, key) > 0 ||
            std::ranges::count(overlay_.unread_groups, table_.group_of(key)) > 0) &&
           std::ranges::count(overlay_.read_keys, key) == 0;
  }

  // The command may have a setting of the same name: --max_seq_length for train.max_seq_length.
  void refuse_of_training(const Given& given) {
    const std::string_view name = leaf(given.key);
    const bool has_own = table_.find(fmt::format("{}.{}", overlay_.section, name)) != nullptr;
    const std::string_view group = table_.group_of(given.key);
    const bool is_of_model = !overlay_.positional.empty() && (group == "model" || group == "data" || group == "lora");
    problems_.add(fmt::format("{} belongs to training", given.key), {given.source},
                  given.key == "model" && !overlay_.positional.empty()
                      ? std::string("name the checkpoint first, without --model")
                  : has_own ? fmt::format("for trireme {} say --{}", overlay_.command, name)
                            : fmt::format("trireme {} trains nothing and {}; leave it out", overlay_.command,
                                          is_of_model ? "takes the model's own" : "does not read it"));
  }

  // The command whose alone the typed setting `given` is, if it is another one (Parsed::typed). What tells or converts
  // settings takes those of every command.
  std::string_view foreign_owner(const Given& given) const {
    const std::string_view self = std::string_view(overlay_.command).substr(0, overlay_.command.find(' '));
    if (given.source.kind != Source::Kind::command_line || self.empty() || self == "explain" ||
        self == "convert_config")
      return {};
    const Section* section = table_.section_of(given.key);
    if (overlay_.reads_its_section_alone && table_.group_of(given.key) != overlay_.section)
      return section == nullptr || section->command.empty() ? "pretrain" : section->command;
    const bool is_own = section == nullptr || section->command == self || section->name == overlay_.section;
    return is_own ? std::string_view() : section->command;
  }

  // The true/false setting that no_pin, no-pin or launch.no_pin negates; empty: none.
  std::string negated(const std::string& key) const {
    const size_t dot = key.find(".no_");
    if (!key.starts_with("no_") && !key.starts_with("no-") && dot == std::string::npos) return "";
    const size_t begin = dot == std::string::npos ? 0 : dot + 1;
    const std::string positive = key.substr(0, begin) + key.substr(begin + 3);
    for (const std::string& name : {resolve(positive), positive}) {
      const Setting* setting = table_.find(name);
      if (setting != nullptr && type_name(*setting) == "true or false") return name;
    }
    return "";
  }

  // In YAML, a name with nothing below it has no value, and "max_steps:5" or "max_steps 5" below it is one text.
  void refuse_value_of_group(const Given& given) {
    const std::string settings = hint_for(table_, given.key + ".");
    const auto add = [&](const std::string& what, const std::string& hint) {
      problems_.add(fmt::format("{} is a group of settings and {}", given.key, what), {given.source}, hint);
    };
    const bool is_in_file = given.source.kind == Source::Kind::file;
    if (is_in_file && given.kind == Given::Kind::null)
      return add("has none below it",
                 fmt::format("leave {} out, or write settings below it, with two spaces before each; {}", given.key,
                             settings));
    const size_t colon = given.text.find(':');
    const bool has_colon = colon != std::string::npos && colon > 0 && colon + 1 < given.text.size();
    if (!is_in_file || given.kind != Given::Kind::scalar ||
        (!has_colon && given.source.text.find(given.text) != std::string::npos))
      return add("takes no value", settings);
    add(fmt::format("takes no value; '{}' is a text", base::shortened(given.text)),
        has_colon ? fmt::format("write a space behind the colon, as in {}: VALUE",
                                base::shortened(given.text.substr(0, colon)))
                  : fmt::format("write NAME: VALUE; {}", settings));
  }

  void refuse_key(const Given& given) {
    if (!given.key.empty() && table_.section_named(given.key) != nullptr) {
      refuse_value_of_group(given);
      return;
    }
    if (const std::string flag = negated(given.key); !flag.empty()) {
      problems_.add(fmt::format("unknown setting {}", given.key), {given.source}, fmt::format("say --{} false", flag));
      return;
    }
    const std::string& word = given.source.text;
    if (std::error_code none; given.source.kind == Source::Kind::command_line && !word.starts_with("--") &&
                              std::filesystem::exists(word, none)) {
      problems_.add(fmt::format("unknown setting {}", given.key), {given.source},
                    fmt::format("to name the path {}, write ./{}", word, word));
    } else if (const std::optional<std::string> reason = refusal_of(table_, given.key)) {
      problems_.add(fmt::format("{} is not available", given.key), {given.source}, *reason);
    } else {
      problems_.add(fmt::format("unknown setting {}", given.key), {given.source},
                    hint_for(table_, given.key, overlay_.command, [&](const std::string& key) {
                      const bool is_typed = given.source.kind == Source::Kind::command_line;
                      return foreign_owner({.key = key, .source = given.source}).empty() &&
                             !(is_typed && is_of_training(key));
                    }));
    }
  }

  // What a file of another system will set, before it counts.
  struct Foreseen {
    Given given;
    size_t position;
  };

  const Overlay& overlay_;
  const Table& table_;
  Parsed parsed_;
  Problems problems_;
  size_t position_ = 0;  // of the argument that is read
  std::map<std::string, size_t> given_at_;  // the position of each setting's value
  std::string dialect_;  // of files, if it is given
  std::vector<std::pair<ForeignFile, size_t>> foreign_;
  std::vector<ForeignFile> foreign_words_;
  std::vector<Foreseen> foreseen_;
};

}  // namespace

void set_defaults(const Overlay& overlay, const Table& table) {
  for (const auto& [key, text] : overlay.values) {
    const Setting* setting = table.find(key);
    check_invariant(setting != nullptr, "a command's default names a setting");
    check_invariant(!assign(*setting, {.key = key, .text = text}), "a command's default is allowed");
  }
}

bool Parsed::given(const std::string& key) const {
  const auto found = provenance.find(key);
  return found != provenance.end() && found->second.kind != Source::Kind::built_in &&
         found->second.kind != Source::Kind::command && found->second.kind != Source::Kind::checkpoint;
}

bool Parsed::typed(const std::string& key) const {
  const auto found = provenance.find(key);
  return found != provenance.end() && found->second.kind == Source::Kind::command_line;
}

Parsed parse(std::span<const std::string> arguments, const Overlay& overlay, const Table& table) {
  std::vector<Section> sections = overlay.own;
  sections.insert(sections.end(), table.sections().begin(), table.sections().end());
  Table whole(std::move(sections));
  whole.others = overlay.others;
  Parser parser(overlay, whole);
  parser.read_environment();
  parser.read_arguments(arguments);
  parser.take_inherited();
  return std::move(parser).result();
}

}  // namespace trireme::config
