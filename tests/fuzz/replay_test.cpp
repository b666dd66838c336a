// Every file that fuzzing has kept, through the same functions, in the quick tests.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "targets.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"

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

/// `levels` brackets around a number.
std::string nested(size_t levels) { return std::string(levels, '[') + "1" + std::string(levels, ']'); }

TEST(Fuzz, deep_inputs_end_likewise) {
  const std::string deep = nested(100'000);  // a parser that recurses for each needs more than a stack of 8 MiB
  int replaced = 0;
  for (const NamedTarget& target : targets()) {
    run_checked(target.run, deep);
    run_checked(target.run, deep.substr(0, 100'000));
    for (const auto& entry : std::filesystem::directory_iterator(kCorpus / target.name)) {
      SCOPED_TRACE(entry.path().string());
      const auto whole = base::parse_json_if_sound<nlohmann::ordered_json>(base::read_file(entry.path()));
      if (!whole.is_object()) continue;
      for (const auto& [changed, ignored] : whole.items()) {  // each value in turn is the deep one
        std::string text;
        for (const auto& [key, value] : whole.items())
          text +=
              (text.empty() ? "{" : ",") + nlohmann::json(key).dump() + ":" + (key == changed ? deep : value.dump());
        run_checked(target.run, text + "}");
        ++replaced;
      }
    }
  }
  EXPECT_GT(replaced, 50);
}

// TRIREME_SLOW=1: 50 places in each input.
TEST(Fuzz, cut_and_changed_inputs_end_likewise) {
  const size_t places = std::getenv("TRIREME_SLOW") != nullptr ? 50 : 20;
  for (const NamedTarget& target : targets()) {
    for (const auto& entry : std::filesystem::directory_iterator(kCorpus / target.name)) {
      SCOPED_TRACE(entry.path().string());
      const std::string whole = base::read_file(entry.path());
      const size_t step = whole.size() / places + 1;
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
