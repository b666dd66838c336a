// Files of other systems that are broken in one place each: every one is refused with its line, or read as another
// right file, at once. TRIREME_SLOW=1 tries all places of all files of the corpus.
#include <chrono>

#include "dialect_test.h"
#include "trireme/base/files.h"

namespace trireme::dialects {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> broken_versions(const std::string& text) {
  std::vector<std::string> result;
  constexpr const char* kWrong[] = {
      "maybe", "-1", "1e400", "\"\"", "[1, 2]", "{\"x\": 1}", "null", "0.5", "99999999999999999999"};
  size_t turn = 0;
  for (size_t at = text.find(':'); at != std::string::npos; at = text.find(':', at + 1)) {
    const size_t end = std::min(text.find_first_of(",}\n", at), text.size());
    std::string value = text;
    value.replace(at + 1, end - at - 1, std::string(" ") + kWrong[turn++ % std::size(kWrong)]);
    result.push_back(value);
    std::string key = text;  // a letter of the key doubled
    if (const size_t letter = text.find_last_of("abcdefghijklmnopqrstuvwxyz", at); letter != std::string::npos)
      key.insert(letter, 1, key[letter]);
    result.push_back(key);
    std::string cut = text;  // a colon lost
    cut.erase(at, 1);
    result.push_back(cut);
    result.push_back(text.substr(0, at));  // the rest lost
  }
  return result;
}

TEST(BrokenFiles, AreRefusedWithTheirLineAtOnceOrAreRight) {
  const bool all = std::getenv("TRIREME_SLOW") != nullptr;
  int tried = 0, refused = 0, placed = 0;
  std::chrono::duration<double> longest{0};
  const Folder folder;
  for (const auto& entry : fs::recursive_directory_iterator(TRIREME_DIALECT_CORPUS)) {
    const fs::path path = entry.path();
    if ((path.extension() != ".json" && path.extension() != ".yaml") || base::is_file(path.string() + ".refused"))
      continue;
    const auto versions = broken_versions(base::read_file(path));
    for (size_t i = 0; i < versions.size(); i += all ? 1 : 7) {
      const std::string file = folder.write("broken" + path.extension().string(), versions[i]);
      const auto before = std::chrono::steady_clock::now();
      try {
        ++tried;
        read("--config " + file + " --devices 2", path.parent_path().filename() == "trl" ? "grpo" : "pretrain");
      } catch (const UsageError& error) {
        ++refused;
        const std::string text = error.what();
        EXPECT_THAT(text, HasSubstr("error: "));
        EXPECT_LT(text.size(), 16'384u);
        placed += text.find(file + ":") != std::string::npos ? 1 : 0;
      }
      longest = std::max<std::chrono::duration<double>>(longest, std::chrono::steady_clock::now() - before);
    }
  }
  EXPECT_GT(tried, all ? 1500 : 300);
  EXPECT_GT(refused, tried / 2);
  // A missing key (distributed_type) and a file that holds one word alone have no line.
  EXPECT_GT(placed, refused * 95 / 100);
  RecordProperty("tried", tried);
  RecordProperty("refused", refused);
  RecordProperty("placed", placed);
  RecordProperty("longest_ms", static_cast<int>(longest.count() * 1000));
}

}  // namespace
}  // namespace trireme::dialects
