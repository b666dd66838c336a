#include "trireme/config/declaration.h"

#include <set>
#include <type_traits>
#include <variant>

#include "settings_test.h"
#include "trireme/config/value.h"

namespace trireme {
namespace {

TEST(Declaration, EveryKeyStandsOnceAndBelongsToAGroup) {
  std::set<std::string> seen, group_names;
  for (const Section& section : all_settings().sections()) group_names.emplace(section.name);
  for (const std::string& key : all_keys()) {
    EXPECT_TRUE(seen.insert(key).second) << key;
    EXPECT_EQ(group_names.count(std::string(all_settings().group_of(key))), 1U) << key;
    EXPECT_EQ(canonical_key(key), key);
  }
  EXPECT_GT(seen.size(), 90U);
}

TEST(Declaration, EverySettingPointsToAValueOfItsOwn) {
  Settings settings;
  std::set<const void*> places;
  const auto place_of = [](auto value) -> const void* {
    if constexpr (std::is_pointer_v<decltype(value)>) {
      return value;
    } else if constexpr (std::is_same_v<decltype(value), ChoiceValue>) {
      return value.place();
    } else {
      return value.text;
    }
  };
  declare(settings).for_each([&](const Section&, const Setting& setting) {
    EXPECT_TRUE(places.insert(std::visit(place_of, setting.value)).second) << setting.key;
  });
}

TEST(Declaration, EveryHelpIsOneLineWithoutAFullStop) {
  all_settings().for_each([](const Section&, const Setting& setting) {
    EXPECT_GT(setting.help.size(), 8U) << setting.key;
    EXPECT_EQ(setting.help.find('\n'), std::string_view::npos) << setting.key;
    EXPECT_NE(setting.help.back(), '.') << setting.key;
  });
}

TEST(Declaration, EveryWordOfAChoiceIsTakenAsItIsListed) {
  Settings settings;
  size_t aliases = 0;
  declare(settings).for_each([&](const Section&, const Setting& setting) {
    const auto* choice = std::get_if<ChoiceValue>(&setting.value);
    if (choice == nullptr) return;
    for (size_t row = 0; row < choice->words().size(); ++row) {
      const ChoiceValue::Word& word = choice->words()[row];
      if (!word.available) continue;
      std::vector<std::string_view> spellings = word.aliases;
      aliases += spellings.size();
      spellings.push_back(word.name);
      for (const std::string_view spelling : spellings) {
        EXPECT_FALSE(assign(setting, {.key = std::string(setting.key), .text = std::string(spelling)}))
            << setting.key << " " << spelling;
        EXPECT_EQ(choice->row().value_or(row), row) << setting.key << " " << spelling;  // none empties an optional one
      }
    }
  });
  EXPECT_GT(aliases, 30U);
}

TEST(Declaration, EnvironmentNamesDiffer) {
  std::set<std::string> names;
  for (const std::string& key : all_keys()) EXPECT_TRUE(names.insert(environment_name(key)).second) << key;
  EXPECT_EQ(environment_name("train.micro_batch_size"), "TRIREME_TRAIN_MICRO_BATCH_SIZE");
}

TEST(Declaration, LitGptWrappersNameTheSameKeys) {
  EXPECT_EQ(canonical_key("data.class_path"), "data");
  EXPECT_EQ(canonical_key("data.init_args.train_data_path"), "data.train_data_path");
  EXPECT_EQ(canonical_key("optimizer.init_args"), "optimizer");
  EXPECT_EQ(canonical_key("model.name"), "model");
  EXPECT_EQ(canonical_key("model.init_args.hidden_size"), "model.init_args.hidden_size");
  EXPECT_EQ(canonical_key("train.name"), "train.name");
  EXPECT_EQ(canonical_key("recompute.mode"), "recompute");
  EXPECT_EQ(canonical_key("recompute.name"), "recompute.name");
  EXPECT_EQ(canonical_key("recompute.init_args.values"), "recompute.init_args.values");
}

}  // namespace
}  // namespace trireme
