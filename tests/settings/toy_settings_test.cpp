// The pages on adding settings and dialects: what they print is compiled here, and the toys that they add are taken,
// explained and refused as all others are.
#include "toy_settings.h"
#include "settings_test.h"
#include "trireme/config/problems.h"
#include "trireme/config/report.h"
#include "trireme/config/yaml_file.h"

namespace trireme {

namespace dialects {
const Dialect& toy();
}

namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Toy {
  toy::ToySettings settings;
  Table table{{section(settings)}};

  std::string refusal(const std::vector<std::string>& arguments, const OtherSystems* known = nullptr) {
    try {
      parse(arguments, {.command = "toy", .section = "toy", .others = known, .environment = no_environment}, table);
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
  const dialects::Dialect* const only[] = {&dialects::toy()};
  const dialects::Systems known({.world_size = [](const dialects::Reading&) { return int64_t{1}; }}, only);
  Toy toy;
  EXPECT_EQ(toy.refusal({"--shuffling.size", "8 samples", "--shuffling.order", "random"}, &known), "");
  EXPECT_EQ(toy.settings, (toy::ToySettings{toy::Shuffle::buffer, 8}));
  const YamlFile file("shuffling: {size: 9 samples, thread: true, machines: 0}\n");
  Toy other;
  EXPECT_EQ(other.refusal({"--config", file.path()}, &known), "");
  EXPECT_EQ(other.settings, (toy::ToySettings{toy::Shuffle::buffer, 9}));
  const YamlFile wrong("shuffling:\n  machines: 2\n  sise: 9 samples\n");
  EXPECT_THAT(other.refusal({"--config", wrong.path()}, &known),
              AllOf(HasSubstr("shuffling.machines 2 is not built yet\n  " + wrong.path() + ":2: machines: 2\n"),
                    HasSubstr("Shuffler has no key shuffling.sise\n  " + wrong.path() +
                              ":3: sise: 9 samples\n  the nearest is shuffling.size")));
  EXPECT_THAT(toy.refusal({"--shuffling.size", "8"}), HasSubstr("unknown setting shuffling.size"));
}

}  // namespace
}  // namespace trireme
