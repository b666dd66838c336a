// The files of the repository that settings are written in: every file of configs/ that is no hardware file, and
// docs/settings.md.
#include "trireme/base/files.h"
#include "settings_test.h"
#include "trireme/settings/parse.h"
#include "trireme/settings/validate.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

const fs::path kSource = TRIREME_SOURCE_DIR;

TEST(RepositoryFiles, EveryConfigIsAcceptedForItsOwnRanks) {
  int files = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(kSource / "configs")) {
    if (!entry.is_regular_file() || entry.path().parent_path().filename() == "hardware") continue;
    const std::string path = entry.path().string();
    EXPECT_EQ(entry.path().extension(), ".yaml") << path;
    ASSERT_EQ(refusal({"--config", path}), "") << path;
    const Settings settings = parse_line({"--config", path}).settings;
    EXPECT_NO_THROW(validate(settings, world_size(settings))) << path;
    EXPECT_FALSE(settings.model.name.empty()) << path;
    ++files;
  }
  EXPECT_GE(files, 1);
}

TEST(RepositoryFiles, TheMainJobIsWhatTheReadmeSays) {
  const Settings s = parse_line({"--config", (kSource / "configs/austen.yaml").string()}).settings;
  EXPECT_EQ(s.model.name, "llama-5m");
  EXPECT_EQ(s.data.name, data::Corpus::austen);
  EXPECT_EQ(s.devices, 2);
  EXPECT_EQ(s.strategy, Strategy::full_shard);
  EXPECT_EQ(s.optimizer.betas.value()[1], 0.95);
  validate_run_length(s);
}

TEST(RepositoryFiles, TheSettingsPageIsUpToDate) {
  EXPECT_EQ(base::read_file(kSource / "docs/settings.md"), settings_reference_markdown())
      << "docs/settings.md is not what the declaration says: run `make docs`";
}

}  // namespace
}  // namespace trireme
