// Each key that becomes a setting has an effect: effects.txt says which, and who sees it. No such key is missing there.
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "dialect_test.h"
#include "plan_text.h"
#include "trireme/base/files.h"
#include "trireme/config/value.h"
#include "trireme/train/setup.h"

namespace trireme::dialects {
namespace {

using Json = nlohmann::ordered_json;

struct Effect {
  std::string dialect, words;  // of the section
  std::map<std::string, Json> keys;  // of the file, base included
  std::string key;  // the one that is tried
  Json value;
  std::vector<std::pair<std::string, std::string>> settings;
  std::string seen, line;
};

// Words of a line; "\ " is a space inside one.
std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words(1);
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == ' ') {
      if (!words.back().empty()) words.emplace_back();
    } else {
      words.back() += line[i] == '\\' && i + 1 < line.size() ? line[++i] : line[i];
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

std::pair<std::string, std::string> parts_of(const std::string& word) {
  const size_t at = word.find('=');
  return {word.substr(0, at), word.substr(at + 1)};
}

std::vector<Effect> effects() {
  std::vector<Effect> all;
  Effect base;
  std::istringstream lines(base::read_file(std::filesystem::path(TRIREME_DIALECT_CORPUS) / "../effects.txt"));
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    if (line[0] == '[') {
      const size_t end = line.find("] ");
      const std::string head = line.substr(1, end - 1);
      base = {.dialect = head.substr(0, head.find(' ')), .words = head.substr(std::min(head.find(' '), head.size()))};
      for (const std::string& word : words_of(line.substr(end + 2)))
        base.keys[parts_of(word).first] = Json::parse(parts_of(word).second);
      continue;
    }
    Effect effect = base;
    effect.line = line;
    bool is_after = false, is_seen = false;
    for (const std::string& word : words_of(line)) {
      if (word == "->")
        is_after = true;
      else if (word == ":")
        is_seen = true;
      else if (is_seen)
        effect.seen = word;
      else if (is_after)
        effect.settings.push_back(parts_of(word));
      else if (word[0] == '!')
        effect.keys.erase(word.substr(1));
      else if (effect.key.empty())
        effect.key = parts_of(word).first, effect.value = Json::parse(parts_of(word).second);
      else
        effect.keys[parts_of(word).first] = Json::parse(parts_of(word).second);
    }
    all.push_back(effect);
  }
  return all;
}

// {"a.b": 1} as {"a": {"b": 1}}.
std::string tree_of(const std::map<std::string, Json>& keys) {
  Json tree = Json::object();
  for (const auto& [key, value] : keys) {
    Json* at = &tree;
    size_t from = 0;
    for (size_t dot; (dot = key.find('.', from)) != std::string::npos; from = dot + 1)
      at = &(*at)[key.substr(from, dot - from)];
    // A system whose keys are overrides has both model=x and model.y=z.
    if (at->is_string()) *at = Json{{"name", *at}};
    (*at)[key.substr(from)] = value;
  }
  return tree.dump(1);
}

struct Seen {
  std::string refusal;
  ParsedSettings parsed;
};

Seen read_keys(const Effect& effect, const std::map<std::string, Json>& keys) {
  Seen seen;
  const bool is_json = effect.dialect == "deepspeed";
  try {
    if (effect.dialect == "hydra") {
      std::vector<std::string> words;
      for (const auto& [key, value] : keys)
        words.push_back(key + "=" + (value.is_string() ? value.get<std::string>() : value.dump()));
      seen.parsed = parse_settings(words, {.command = "pretrain",
                                           .others = &systems_of_tests(),
                                           .environment = [](const char*) -> const char* { return nullptr; }});
    } else {
      const std::string model = keys.contains("model_name") || keys.contains("checkpoint_dir") ||
                                        keys.contains("initial_checkpoint_dir") ||
                                        keys.contains("model_name_or_path") || effect.dialect == "free-transformer" ||
                                        keys.contains("model_config.n_layer")
                                    ? ""
                                    : "llama-5m ";
      const Folder folder;
      const std::string file = folder.write(is_json ? "effect.json" : "effect.yaml", tree_of(keys));
      seen.parsed = read(model + "--config " + file + " --config_dialect " + effect.dialect + effect.words,
                         effect.dialect == "trl" ? "grpo" : "pretrain");
    }
  } catch (const UsageError& error) {
    seen.refusal = error.what();
  }
  return seen;
}

std::string value_of(Settings settings, const std::string& setting) {
  const config::Table table = declare(settings);
  const config::Setting* row = table.find(setting);
  return row == nullptr ? "no such setting" : config::value_text(*row);
}

std::string rate_text(const Settings& settings) {
  const optim::LrSchedule schedule = train::lr_schedule(settings, settings.train.max_steps.value_or(100));
  std::string text;
  for (int64_t step = 1; step <= 60; ++step) text += fmt::format("{} ", schedule.at(step));
  return text;
}

std::string seen_by(const std::string& who, const Seen& seen) {
  if (!seen.refusal.empty()) return "refused: " + seen.refusal;
  try {
    if (who == "plan") return plan_text(seen.parsed.settings);
    if (who == "rate") return rate_text(seen.parsed.settings);
    return to_yaml(seen.parsed.settings);
  } catch (const UsageError& error) {
    return std::string("refused: ") + error.what();
  }
}

TEST(Effects, OfEachKeyAreSeen) {
  at::set_num_threads(1);
  for (const Effect& effect : effects()) {
    SCOPED_TRACE(effect.dialect + ": " + effect.line);
    std::map<std::string, Json> with = effect.keys;
    with[effect.key] = effect.value;
    const Seen off = read_keys(effect, effect.keys), on = read_keys(effect, with);
    if (effect.seen == "refused") {
      EXPECT_THAT(on.refusal, HasSubstr(effect.key.substr(effect.key.rfind('.') + 1)));
      continue;
    }
    EXPECT_EQ(on.refusal, "");
    if (!on.refusal.empty()) continue;
    for (const auto& [setting, value] : effect.settings)
      EXPECT_EQ(value_of(on.parsed.settings, setting), value) << setting;
    const auto account =
        std::ranges::find_if(on.parsed.accounts, [&](const config::Account& a) { return a.key == effect.key; });
    if (account != on.parsed.accounts.end()) EXPECT_EQ(account->is_ignored, effect.seen == "ignored") << account->text;
    if (effect.seen == "ignored") continue;
    const std::string found = seen_by(effect.seen, on);
    EXPECT_FALSE(found.starts_with("refused")) << found;
    EXPECT_NE(found, seen_by(effect.seen, off)) << effect.seen << " sees no effect";
  }
}

TEST(Effects, NoKeyThatBecomesASettingIsMissing) {
  // Of these, other tests see the effect: a file that is named, and options of a launcher or of another command.
  std::set<std::string> covered = {"accelerate deepspeed_config.deepspeed_config_file", "hydra experiment",
                                   "litgpt convert.checkpoint_path", "litgpt convert.output_dir"};
  for (const Effect& effect : effects()) covered.insert(effect.dialect + " " + effect.key);
  for (const Dialect* dialect : all_dialects()) {
    if (dialect == &torchrun()) continue;  // words_test.cpp
    for (const Row& row : dialect->rows)
      if (!row.setting.empty() || !row.becomes.empty())
        EXPECT_TRUE(covered.contains(fmt::format("{} {}", dialect->name, row.key))) << dialect->name << " " << row.key;
  }
}

}  // namespace
}  // namespace trireme::dialects
