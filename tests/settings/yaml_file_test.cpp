#include "trireme/config/yaml_file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "settings_test.h"

namespace trireme {
namespace {

using testing::HasSubstr;

Settings settings_of(const std::string& yaml) {
  const YamlFile file(yaml);
  return parse_line({"--config", file.path()}).settings;
}

std::string refusal_of_file(const std::string& yaml) {
  const YamlFile file(yaml);
  const std::string text = refusal({"--config", file.path()});
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const bool is_path = text.compare(at, file.path().size(), file.path()) == 0;
    result += is_path ? 'F' : text[at];
    at += is_path ? file.path().size() : 1;
  }
  return result;
}

TEST(YamlFile, NestedDottedAndFlowKeysMeanTheSame) {
  EXPECT_EQ(settings_of("train:\n  max_steps: 5\n").train.max_steps, 5);
  EXPECT_EQ(settings_of("train.max_steps: 5\n").train.max_steps, 5);
  EXPECT_EQ(settings_of("train: {max_steps: 5}\n").train.max_steps, 5);
}

TEST(YamlFile, LitGptsClassPathAndInitArgsAreUnderstood) {
  const Settings s = settings_of(
      "data:\n  class_path: litgpt.data.TextFiles\n  init_args:\n    train_data_path: corpus\n"
      "optimizer: {class_path: torch.optim.AdamW, init_args: {lr: 4e-4, betas: [0.9, 0.95]}}\n");
  EXPECT_EQ(s.data.name, data::Corpus::text_files);
  EXPECT_EQ(s.data.train_data_path, "corpus");
  EXPECT_EQ(s.optimizer.name, optim::Rule::adamw);
  EXPECT_EQ(s.optimizer.lr, 4e-4);
  EXPECT_EQ(s.optimizer.betas.value()[1], 0.95);
}

TEST(YamlFile, AModelIsANameOrAGroup) {
  EXPECT_EQ(settings_of("model: llama-5m\n").model.name, "llama-5m");
  const Settings s = settings_of("model: {name: llama-5m, num_hidden_layers: 3}\n");
  EXPECT_EQ(s.model.name, "llama-5m");
  EXPECT_EQ(s.model.num_hidden_layers, 3);
}

TEST(YamlFile, RecomputeIsAWordOrAGroup) {
  EXPECT_EQ(settings_of("recompute: full\n").recompute.mode, Recompute::full);
  EXPECT_EQ(settings_of("recompute: none\n").recompute.mode, Recompute::none);
  const Settings s = settings_of("recompute: {mode: selective, values: [mid, hidden], every: 2}\n");
  EXPECT_EQ(s.recompute.mode, Recompute::selective);
  EXPECT_EQ(s.recompute.values, (std::vector<std::string>{"mid", "hidden"}));
  EXPECT_EQ(s.recompute.every, 2);
  EXPECT_EQ(settings_of("recompute.mode: full\n").recompute.mode, Recompute::full);
  EXPECT_THAT(refusal_of_file("recompute: full\nrecompute.mode: none\n"), HasSubstr("recompute is set twice"));
}

TEST(YamlFile, ListsOfNumbersAndNames) {
  EXPECT_EQ(settings_of("pipeline: {split: [4, 4, 3]}\n").pipeline.split, (std::vector<int64_t>{4, 4, 3}));
  EXPECT_EQ(settings_of("pipeline:\n  split:\n  - 4\n  - 3\n").pipeline.split, (std::vector<int64_t>{4, 3}));
  EXPECT_EQ(settings_of("wrap: {units: [embedding, \"block 0\"]}\n").wrap.units,
            (std::vector<std::string>{"embedding", "block 0"}));
  EXPECT_EQ(settings_of("wrap: {units: null}\n").wrap.units, std::nullopt);
  EXPECT_THAT(refusal_of_file("pipeline: {split: [4, [3]]}\n"), HasSubstr("wants a list of whole numbers or auto"));
  EXPECT_THAT(refusal_of_file("pipeline: {split: {a: 1}}\n"), HasSubstr("not a group of settings"));
}

TEST(YamlFile, NullTakesAValueAway) {
  EXPECT_EQ(settings_of("train: {max_norm: null}\n").train.max_norm, std::nullopt);
  EXPECT_EQ(settings_of("train:\n  max_norm:\n").train.max_norm, std::nullopt);
  EXPECT_THAT(refusal_of_file("train: {log_interval: null}\n"), HasSubstr("wants a whole number, not null"));
  EXPECT_EQ(settings_of("data: {val_data_path: \"null\"}\n").data.val_data_path, "null");
}

TEST(YamlFile, AnEmptyFileSetsNothing) {
  EXPECT_EQ(settings_of(""), Settings{});
  EXPECT_EQ(settings_of("# only a comment\n"), Settings{});
}

TEST(YamlFile, AKeyTwiceIsRefusedWithBothLines) {
  EXPECT_EQ(refusal_of_file("seed: 1\nseed: 2\n"),
            "error: seed is set twice in F\n  F:1: seed: 1\n  F:2: seed: 2\n  keep one of the two lines");
  EXPECT_THAT(refusal_of_file("data: {class_path: Austen, name: TextFiles}\n"), HasSubstr("data is set twice"));
  EXPECT_THAT(refusal_of_file("train:\n  max_steps: 1\nseed: 1\ntrain:\n  epochs: 1\n"),
              HasSubstr("train stands twice in"));
  EXPECT_THAT(refusal_of_file("train: {epochs: 1}\ntrain.epochs: 2\n"), HasSubstr("train.epochs is set twice"));
}

TEST(YamlFile, ItemsThatAreNoTextsAreRefused) {
  EXPECT_THAT(refusal_of_file("generate: {stop: [null, END]}\n"),
              HasSubstr("generate.stop has an item that is nothing\n  F:1: "));
  EXPECT_THAT(refusal_of_file("reward: {command: [[python, judge.py]]}\n"), HasSubstr("has an item that is a list"));
  EXPECT_THAT(refusal_of_file("generate: {stop: [{a: b}]}\n"), HasSubstr("has an item that is a map"));
  EXPECT_EQ(refusal_of_file("generate: {stop: [\"?\", \"null\"]}\n"), "");
}

TEST(YamlFile, BrokenYamlIsRefusedWithItsLine) {
  EXPECT_THAT(refusal_of_file("seed: 1\ntrain: {max_steps: 5\n"), HasSubstr("error: F is not valid YAML"));
  EXPECT_THAT(refusal_of_file("a: b: c\n"), HasSubstr("\n  F:1: a: b: c"));
  EXPECT_THAT(refusal_of_file("- 1\n"), HasSubstr("F is not one tree of settings\n  F:1: - 1"));
  EXPECT_THAT(refusal_of_file("seed: 1\n---\nseed: 2\n"), HasSubstr("a second document (---) is not read"));
  EXPECT_THAT(refusal_of_file("[a]: 1\n"), HasSubstr("a key that is no name"));
}

TEST(YamlFile, AFileThatStartsWithACommaIsRefused) {
  EXPECT_THAT(refusal_of_file(",seed: 1\n"), HasSubstr("F is not one tree of settings\n  F:1: ,seed: 1"));
}

TEST(YamlFile, ShapesThatDoNotFitAreRefused) {
  EXPECT_THAT(refusal_of_file("train: 4\n"),
              HasSubstr("train is a group of settings and takes no value\n  F:1: train: 4\n  its settings are train."));
  EXPECT_THAT(
      refusal_of_file("train:\n  # max_steps: 4\nseed: 1\n"),
      HasSubstr("train is a group of settings and has none below it\n  F:1: train:\n  leave train out, or write "
                "settings below it, with two spaces before each; its settings are train."));
  EXPECT_THAT(
      refusal_of_file("train:\n  max_steps:5\n"),
      HasSubstr("train is a group of settings and takes no value; 'max_steps:5' is a text\n  F:1: train:\n  write "
                "a space behind the colon, as in max_steps: VALUE"));
  EXPECT_THAT(refusal_of_file("train:\n  max_steps 5\n"),
              HasSubstr("'max_steps 5' is a text\n  F:1: train:\n  write NAME: VALUE; its settings are train."));
  EXPECT_THAT(refusal_of_file("lora: {rank_pattern: {q_proj: 2}}\n"),
              HasSubstr("write for instance lora.rank_pattern: [q_proj=16]"));
  EXPECT_THAT(refusal_of_file("seed: {a: 1}\n"), HasSubstr("seed wants a whole number, not a group of settings"));
  EXPECT_THAT(refusal_of_file("seed: [1, 2]\n"), HasSubstr("seed wants a whole number, not the list [1, 2]"));
  EXPECT_THAT(refusal_of_file("trian: {max_steps: 1}\n"), HasSubstr("unknown setting trian"));
  EXPECT_THAT(refusal_of_file("optimizer: {betas: [0.9, 0.95, 0.99]}\n"),
              HasSubstr("wants two numbers such as [0.9, 0.95] or auto, not the list"));
}

TEST(YamlFile, AnAliasThatHoldsItselfIsRefused) {
  EXPECT_NE(refusal_of_file("train: &t\n  train: *t\n"), "");
  EXPECT_NE(refusal_of_file("data: &d\n  init_args: *d\n"), "");
}

// Each line stands for ten of the one before it.
TEST(YamlFile, ABillionLaughsAreRefusedWhereTheyBecomeTooMany) {
  std::string yaml = "a: &a [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n";
  for (char c = 'b'; c <= 'j'; ++c) {
    yaml += std::string(1, c) + ": &" + c + " [";
    for (int i = 0; i < 10; ++i) yaml += std::string(i == 0 ? "*" : ", *") + static_cast<char>(c - 1);
    yaml += "]\n";
  }
  EXPECT_THAT(refusal_of_file(yaml), HasSubstr("F is not valid YAML: there are more than 20,000 values up to here, "
                                               "with those that aliases stand for\n  F:5: e: &e [*d, *d"));
  EXPECT_THAT(refusal_of_file("seed: [" + std::string(60'000, ',') + "]\n"), HasSubstr("F is not valid YAML"));
  EXPECT_THAT(refusal_of_file("#" + std::string(2 << 20, 'x')), HasSubstr("holds more than 1 MiB"));
}

TEST(YamlFile, FewAliasesAreFine) {
  EXPECT_EQ(settings_of("train: {max_steps: &n 7, log_interval: *n}\n").train.log_interval, 7);
}

// Damage a good file in a few places: it is accepted or refused, in words, and nothing else happens.
RC_GTEST_PROP(YamlFile, ADamagedFileIsAcceptedOrRefused, ()) {
  std::string yaml =
      "# a run\nmodel: llama-5m\ntrain:\n  max_steps: 5  # steps\n  max_norm: null\n"
      "optimizer: {class_path: torch.optim.AdamW, init_args: {lr: 2e-3, betas: [0.9, 0.95]}}\n"
      "data: &d\n  name: \"Austen\"\n  seed: 1\nresume: 'auto'\n";
  const auto damages = *rc::gen::inRange(1, 5);
  for (int i = 0; i < damages; ++i) {
    const auto place = *rc::gen::inRange<size_t>(0, yaml.size());
    const char letter = *rc::gen::oneOf(rc::gen::arbitrary<char>(),
                                        rc::gen::elementOf(std::string("{}[]:,&*!|>%@`\"'#-?~<\t\n .=") + '\0'));
    switch (*rc::gen::inRange(0, 3)) {
      case 0:
        yaml[place] = letter;
        break;
      case 1:
        yaml.insert(place, 1, letter);
        break;
      default:
        yaml.erase(place, *rc::gen::inRange<size_t>(1, 20));
    }
    if (yaml.empty()) break;
  }
  const std::string text = refusal_of_file(yaml);  // any other exception than UsageError fails the test
  RC_ASSERT(text.empty() || text.substr(0, 7) == "error: ");
}

TEST(YamlFile, AMixtureIsAListOfPathsAndWeights) {
  using Items = std::vector<std::string>;
  EXPECT_EQ(settings_of("data:\n  mixture:\n    - {path: a b.txt, weight: 0.7}\n    - path: c\n      weight: 3e-1\n")
                .data.mixture,
            (Items{"0.7 a b.txt", "3e-1 c"}));
  EXPECT_EQ(settings_of("data: {mixture: [{path: a}, b]}\n").data.mixture, (Items{"a", "b"}));
  EXPECT_EQ(settings_of("data: {mixture: [{path: 2024 dump/a.txt}, {path: /2024 b}]}\n").data.mixture,
            (Items{"./2024 dump/a.txt", "/2024 b"}));
  EXPECT_EQ(parse_line({"--data.mixture", "[0.7 a, 0.3 b]"}).settings.data.mixture, (Items{"0.7 a", "0.3 b"}));
  EXPECT_EQ(parse_line({"--data.mixture", R"(["0.7 a, c", "\n", 3])"}).settings.data.mixture,
            (Items{"0.7 a, c", "\n", "3"}));
}

TEST(YamlFile, ItemsOfAListThatIsTypedMayBeInQuotes) {
  using Items = std::vector<std::string>;
  const auto items = [](const std::string& typed) {
    return parse_line({"--data.mixture", typed}).settings.data.mixture.value_or(Items());
  };
  EXPECT_EQ(items(R"([END, "\n", "a, b"])"), (Items{"END", "\n", "a, b"}));
  EXPECT_EQ(items("['END', 'a, b']"), (Items{"END", "a, b"}));
  EXPECT_EQ(items(R"("\n")"), (Items{"\n"}));
  EXPECT_EQ(items(R"("a", "b")"), (Items{"a", "b"}));
  EXPECT_EQ(items(R"([don't, "x, 'y' ])"), (Items{"don't", "\"x", "y"}));
  EXPECT_EQ(items(R"(["\d+", b\n])"), (Items{"\\d+", "b\\n"})) << "no escape of JSON, no quotes";
  EXPECT_EQ(items(" a"), Items{" a"}) << "one text alone";
  EXPECT_EQ(items(" a, b"), (Items{"a", "b"}));
}

TEST(YamlFile, AMergeKeyBringsTheKeysOfOtherMaps) {
  const Settings s = settings_of(
      "train: &first {max_norm: 0.5, max_steps: 7, log_interval: 3}\n"
      "eval:\n  interval: 9\n"
      "optimizer: {<<: {lr: 1e-2, eps: 1e-6}, lr: 1e-4}\n"
      "data:\n  <<: [{val_split_fraction: 0.5}, {val_split_fraction: 0.25, name: TextFiles}]\n");
  EXPECT_EQ(s.optimizer.lr, 1e-4);  // the map's own key counts more
  EXPECT_EQ(s.optimizer.eps, 1e-6);
  EXPECT_EQ(s.data.val_split_fraction, 0.5);  // of several maps the first
  EXPECT_EQ(s.train.max_steps, 7);
  EXPECT_EQ(settings_of("<<: {seed: 3}\n").seed, 3);
  EXPECT_THAT(refusal_of_file("train: {<<: {max_nrom: 1}}\n"), HasSubstr("unknown setting train.max_nrom"));
}

TEST(YamlFile, AMissingFileOrAFolderIsRefusedByPath) {
  EXPECT_THAT(refusal({"--config", "not/there.yaml"}), HasSubstr("cannot open not/there.yaml: No such file"));
  EXPECT_THAT(refusal({"--config", "/"}), HasSubstr("cannot read /: Is a directory"));
}

// yaml-cpp closes quotes at the end of the file.
TEST(YamlFile, AQuoteThatIsNeverClosedIsRefusedInItsLine) {
  for (const char* quote : {"\"", "'"}) {
    const std::string text =
        refusal_of_file(fmt::format("model: llama-5m\nout_dir: {}o\ntrain: {{max_steps: 1}}\n", quote));
    EXPECT_THAT(text, HasSubstr("F:2")) << text;
    EXPECT_THAT(text, HasSubstr("a quote that begins here is never closed")) << text;
  }
  std::string many = "out_dir: 'o\n";  // is told as soon as it is read
  for (int line = 0; line < 100'000; ++line) many += "x\n";
  EXPECT_THAT(refusal_of_file(many), HasSubstr("F:1"));
  EXPECT_EQ(settings_of("out_dir: 'o\n  p'\nseed: 3\n").out_dir, "o p");
  EXPECT_EQ(settings_of("out_dir: it's\n# don't\nseed: 3\n").seed, 3);
}

// As PyYAML writes texts of line breaks. yaml-cpp reads them as empty.
TEST(YamlFile, LineBreaksThatAreAllOfAQuotedTextAreKept) {
  const auto value = [](const std::string& yaml) { return YAML::Load(config::keep_quoted_breaks(yaml))["a"]; };
  EXPECT_EQ(value("a: '\n\n  '\n").Scalar(), "\n");
  EXPECT_EQ(value("a: '\n\n\n  '\nb: 1\n").Scalar(), "\n\n");
  EXPECT_EQ(value("a:\n- '\n\n  '\n- \"\n\n  \"\n- x\n")[1].Scalar(), "\n");
  EXPECT_EQ(value("a: ['\n\n', 'x']\n")[1].Scalar(), "x");
  for (const char* same : {"a: 'x'\n\n'b': 1\n", "a: ''\n\nb: ''\n", "a: '\n  '\n", "a: 'x\n\n  y'\n", "a: \"\\n\"\n"})
    EXPECT_EQ(config::keep_quoted_breaks(same), same);
  // Quotes inside a block scalar, another quoted text or a comment are text.
  for (const char* same :
       {"a: |\n  say: \"\n\n  \"\n", "a:\n- >-  # folded\n  x: '\n\n  '\n- 1\n", "b: |\n\n  - '\n\n  '\na: 1\n",
        "a: \"b: '\n\n  ' c\"\n", "a: 'it''s: \"\n\n  \"'\n", "# so: '\n\na: '\n"})
    EXPECT_EQ(config::keep_quoted_breaks(same), same);
  EXPECT_EQ(value("a: |\n  say: \"\n\n  \"\n").Scalar(), "say: \"\n\n\"\n");
  EXPECT_EQ(value("b: |\n  text\na: '\n\n  '\n").Scalar(), "\n");
  EXPECT_EQ(value("b: x  # '\n\na: '\n\n  '\n").Scalar(), "\n");
  const std::string three = "a: '\n\n\n  '\nb: 1\n", kept = config::keep_quoted_breaks(three);
  EXPECT_EQ(std::ranges::count(kept, '\n'), std::ranges::count(three, '\n')) << "lines keep their numbers";
}

}  // namespace
}  // namespace trireme
