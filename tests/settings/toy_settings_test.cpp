// The pages on adding settings and dialects: what they print is compiled here, and the toys that they add are taken,
// explained and refused as all others are.
#include "toy_settings.h"
#include "settings_test.h"
#include "trireme/config/problems.h"
#include "trireme/config/report.h"
#include "trireme/config/yaml_file.h"

namespace trireme {

namespace dialects {
void toy(config::Given& given);
}

namespace {

using testing::HasSubstr;

struct Toy {
  toy::ToySettings settings;
  Table table{{section(settings)}};

  std::string refusal(const std::vector<std::string>& arguments, const std::vector<Dialect>& known = {}) {
    try {
      parse(arguments, {.command = "toy", .section = "toy", .dialects = known, .environment = no_environment}, table);
      Problems problems;
      for (const Section& one : table.sections()) one.check(problems);
      problems.throw_if_any();
      return "";
    } catch (const UsageError& error) {
      return error.what();
    }
  }
};

TEST(AddingASetting, ARowIsAllThatHelpHintsAndRefusalsNeed) {
  Toy toy;
  EXPECT_EQ(toy.refusal({"--shuffle", "reservoir", "--toy.buffer=1e3"}), "");
  EXPECT_EQ(toy.settings, (toy::ToySettings{toy::Shuffle::buffer, 1000}));
  EXPECT_EQ(to_yaml(toy.table), "toy:\n  shuffle: buffer\n  buffer: 1000\n");
  EXPECT_THAT(help_text(toy.table), HasSubstr("--toy.shuffle  none or buffer  [buffer]"));
  EXPECT_THAT(toy.refusal({"--shuffle", "bufer"}),
              HasSubstr("toy.shuffle wants none or buffer, not 'bufer'\n  command line: --shuffle bufer\n"
                        "  the nearest is buffer"));
  EXPECT_THAT(toy.refusal({"--toy.bufer", "3"}), HasSubstr("the nearest is toy.buffer"));
  EXPECT_THAT(toy.refusal({"--shuffle_buffer_size", "3"}), HasSubstr("samples that are drawn from are toy.buffer"));
  EXPECT_THAT(toy.refusal({"--shuffle", "buffer", "--buffer", "0"}), HasSubstr("there are no samples to draw from"));
  EXPECT_EQ(toy.table.resumed("toy.shuffle"), Resumed::learned);
  EXPECT_EQ(toy.table.resumed("toy.buffer"), Resumed::yes);
}

TEST(AddingADialect, ItsWordsAreTakenInFilesAndOnTheCommandLine) {
  Toy toy;
  EXPECT_EQ(toy.refusal({"--shuffling.size", "8 samples"}, {dialects::toy}), "");
  EXPECT_EQ(toy.settings.buffer, 8);
  const YamlFile file("shuffling: {size: 9 samples}\n");
  EXPECT_EQ(toy.refusal({"--config", file.path()}, {dialects::toy}), "");
  EXPECT_EQ(toy.settings.buffer, 9);
  EXPECT_THAT(toy.refusal({"--shuffling.size", "8"}), HasSubstr("unknown setting shuffling.size"));
}

}  // namespace
}  // namespace trireme
