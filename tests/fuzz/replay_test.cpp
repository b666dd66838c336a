// Every file that fuzzing has kept, through the same functions, in the quick tests.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "targets.h"
#include "trireme/base/files.h"

namespace trireme::fuzz {
namespace {

const std::filesystem::path kCorpus = TRIREME_FUZZ_CORPUS;

TEST(Fuzz, every_target_has_a_corpus_and_every_corpus_a_target) {
  std::set<std::string> folders, names;
  for (const auto& entry : std::filesystem::directory_iterator(kCorpus)) folders.insert(entry.path().filename());
  for (const NamedTarget& target : targets()) names.insert(std::string(target.name));
  EXPECT_EQ(folders, names);
}

TEST(Fuzz, every_kept_input_ends_with_a_result_or_with_one_clear_error) {
  int files = 0;
  for (const NamedTarget& target : targets()) {
    for (const auto& entry : std::filesystem::directory_iterator(kCorpus / target.name)) {
      SCOPED_TRACE(entry.path().string());
      run_checked(target.run, base::read_file(entry.path()));
      ++files;
    }
  }
  EXPECT_GE(files, static_cast<int>(targets().size()));
}

TEST(Fuzz, cut_and_changed_inputs_end_likewise) {
  for (const NamedTarget& target : targets()) {
    for (const auto& entry : std::filesystem::directory_iterator(kCorpus / target.name)) {
      SCOPED_TRACE(entry.path().string());
      const std::string whole = base::read_file(entry.path());
      const size_t step = whole.size() / 50 + 1;
      for (size_t i = 0; i < whole.size(); i += step) {
        run_checked(target.run, std::string_view(whole).substr(0, i));
        std::string changed = whole;
        changed[i] = static_cast<char>(changed[i] ^ 0x11);
        run_checked(target.run, changed);
      }
    }
  }
}

}  // namespace
}  // namespace trireme::fuzz
