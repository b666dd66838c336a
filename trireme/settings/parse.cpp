#include "trireme/settings/parse.h"

#include "trireme/config/report.h"

namespace trireme {

ParsedSettings parse_settings(std::span<const std::string> arguments, const config::Overlay& overlay) {
  ParsedSettings parsed;
  const config::Table table = declare(parsed.settings);
  static_cast<config::Parsed&>(parsed) = config::parse(arguments, overlay, table);
  return parsed;
}

bool is_setting(const std::string& word) {
  Settings settings;
  const config::Table table = declare(settings);
  return table.find(table.canonical_key(word)) != nullptr || table.section_named(word) != nullptr;
}

std::string help_text(const std::vector<std::string>& words, const config::Overlay& overlay) {
  Settings settings;
  config::Table table = declare(settings);
  table.others = overlay.others;
  config::set_defaults(overlay, table);
  return config::help_text(table, words, overlay);
}

std::string settings_reference_markdown() {
  Settings settings;
  return "# Settings\n\n"
         "<!-- Written by `make docs` from the sections in trireme/*/settings.cpp; edit it there. -->\n\n"
         "A setting has one dotted key everywhere: `--train.micro_batch_size 4`, `--train.micro_batch_size=4` or\n"
         "`train.micro_batch_size=4` on the command line, `train: {micro_batch_size: 4}` in a YAML file given with\n"
         "`--config FILE`, `TRIREME_TRAIN_MICRO_BATCH_SIZE=4` in the environment. Defaults come first, then what a\n"
         "resumed run's checkpoint says (`docs/checkpoints.md`), then the environment, then the arguments from left "
         "to\n"
         "right (a file where its `--config` stands); what comes later wins. In one file a key stands once. A "
         "true/false setting alone means true: `--engine.poison`.\n\n"
         "Numbers may be written `3e9` or `4_096`, sizes `512MiB` or `5GB`, times `30s`, `10m` or `1h30m` (a bare "
         "number\n"
         "is seconds), lists `[4, 4, 3]` or `4,4,3`. `null` means that a setting is not given. In YAML, `data` and\n"
         "`optimizer` are names (`data: Austen`) or groups (`data: {name: TextFiles, train_data_path: F}`); LitGPT's\n"
         "`{class_path: litgpt.data.TextFiles, init_args: {train_data_path: F}}` says the same. `recompute` is a word\n"
         "(`recompute: full`) or a group (`recompute: {mode: selective, values: [mid, hidden]}`).\n\n"
         "`trireme explain config ...` prints every value and where it came from; what is wrong is refused before\n"
         "anything starts, with exit code 2.\n" +
         config::reference_tables(declare(settings));
}

std::string explain(const ParsedSettings& parsed) {
  Settings copy = parsed.settings;
  return config::explain(declare(copy), parsed);
}

std::string given_yaml(const ParsedSettings& parsed) {
  Settings copy = parsed.settings;
  return config::to_yaml(declare(copy), &parsed);
}

std::string to_yaml(const Settings& settings) {
  Settings copy = settings;
  return config::to_yaml(declare(copy));
}

std::string to_json(const Settings& settings) {
  Settings copy = settings;
  return config::to_json(declare(copy));
}

}  // namespace trireme
