// Files of other systems, in the shapes that their documentation and the guides print (corpus/). Each is read, or
// refused by the words in FILE.refused; FILE.words has the rest of its command line.
#include <map>

#include "dialect_test.h"
#include "plan_text.h"
#include "trireme/base/files.h"
#include "trireme/config/json_file.h"
#include "trireme/config/yaml_file.h"

namespace trireme::dialects {
namespace {

namespace fs = std::filesystem;
const fs::path kCorpus = TRIREME_DIALECT_CORPUS;

std::string beside(const fs::path& file, const char* ending) {
  const fs::path path = file.string() + ending;
  if (!base::is_file(path)) return "";
  std::string text = base::read_file(path);
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

std::vector<fs::path> files() {
  std::vector<fs::path> found;
  for (const auto& entry : fs::recursive_directory_iterator(kCorpus))
    if (entry.path().extension() == ".json" || entry.path().extension() == ".yaml") found.push_back(entry.path());
  return found;
}

size_t num_keys(const fs::path& file) {
  config::Problems problems;
  const std::string text = base::read_file(file);
  return file.extension() == ".json" ? config::read_json_tree(text, "x", problems).size()
                                     : config::read_yaml_tree(text, "x", problems).size();
}

// Many files name no model, or a folder that is not here.
Settings on_a_model(Settings settings) {
  const std::vector<std::string> names = model::catalogue_names();
  if (std::ranges::find(names, settings.model.name) == names.end()) settings.model.name = "llama-32m";
  return settings;
}

TEST(Corpus, EachFileIsReadWithAllItsKeysOrRefusedByName) {
  std::map<std::string, int> read_files, refused_files;
  for (const fs::path& file : files()) {
    SCOPED_TRACE(file.string());
    const std::string system = file.parent_path().filename(), wanted = beside(file, ".refused");
    const std::string command = system == "litgpt" && file.string().find("lora") != std::string::npos ? "finetune_lora"
                                : system == "trl"                                                     ? "grpo"
                                : file.filename() == "full.yaml"                                      ? "finetune_full"
                                                                                                      : "pretrain";
    try {
      const ParsedSettings parsed = read("--config " + file.string() + " " + beside(file, ".words"), command);
      EXPECT_EQ(wanted, "") << "it is accepted";
      EXPECT_EQ(parsed.accounts.size(), num_keys(file)) << explain(parsed.accounts);
      for (const config::Account& account : parsed.accounts) EXPECT_NE(account.text, "") << account.key;
      validate(parsed.settings, world_size(parsed.settings));

      // The same settings as Trireme's own YAML.
      const Folder folder;
      const ParsedSettings native = read("--config " + folder.write("native.yaml", given_yaml(parsed)), command);
      EXPECT_TRUE(native.accounts.empty()) << given_yaml(parsed);
      EXPECT_EQ(to_yaml(native.settings), to_yaml(parsed.settings));
      EXPECT_TRUE(native.settings == parsed.settings);
      const int last_rank = static_cast<int>(world_size(parsed.settings)) - 1;
      const std::string plan = plan_text(on_a_model(parsed.settings), last_rank);
      EXPECT_GT(plan.size(), 1000u);
      EXPECT_EQ(plan_text(on_a_model(native.settings), last_rank), plan);
      ++read_files[system];
    } catch (const UsageError& error) {
      EXPECT_NE(wanted, "") << error.what();
      EXPECT_THAT(error.what(), HasSubstr(wanted));
      EXPECT_THAT(error.what(), HasSubstr(file.string() + ":"));  // and the line
      ++refused_files[system];
    }
  }
  for (const char* system : {"deepspeed", "accelerate", "litgpt", "free-transformer", "hydra", "trl"}) {
    EXPECT_GT(read_files[system], 0) << system;
    EXPECT_GT(refused_files[system], 0) << system;
  }
}

TEST(Dialects, ThePageListsEveryKeyAsTheTablesHaveIt) {
  EXPECT_EQ(base::read_file(kCorpus / "../../../docs/dialects.md"), dialects_markdown())
      << "docs/dialects.md is not what the tables say: run `make docs`";
}

TEST(Dialects, EveryRowSaysOneThing) {
  for (const Dialect* dialect : all_dialects()) {
    Settings settings;
    const config::Table table = declare(settings);
    for (const Row& row : dialect->rows) {
      SCOPED_TRACE(std::string(dialect->name) + ": " + std::string(row.key));
      EXPECT_EQ(
          !row.setting.empty() + !row.becomes.empty() + !row.ignored.empty() + !row.refused.empty() + !row.open.empty(),
          1);
      if (!row.setting.empty()) EXPECT_NE(table.find(row.setting), nullptr);
      EXPECT_EQ(find_row(*dialect, row.key), &row);  // no other row stands before it
    }
  }
}

}  // namespace
}  // namespace trireme::dialects
