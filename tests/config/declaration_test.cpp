#include "trireme/config/declaration.h"

#include <set>

#include "config_test.h"

namespace trireme::config {
namespace {

TEST(Declaration, EveryKeyStandsOnceAndBelongsToAGroup) {
  std::set<std::string> seen, group_names;
  for (const Group& group : groups()) group_names.emplace(group.name);
  for (const std::string& key : all_keys()) {
    EXPECT_TRUE(seen.insert(key).second) << key;
    EXPECT_EQ(group_names.count(std::string(group_of(key))), 1U) << key;
    EXPECT_EQ(canonical_key(key), key);
  }
  EXPECT_GT(seen.size(), 90U);
}

TEST(Declaration, EverySettingPointsToAValueOfItsOwn) {
  Settings settings;
  std::set<const void*> places;
  for (const Setting& setting : declare(settings)) {
    std::visit([&](auto* value) { EXPECT_TRUE(places.insert(value).second) << setting.key; }, setting.value);
  }
}

TEST(Declaration, EveryHelpIsOneLineWithoutAFullStop) {
  Settings settings;
  for (const Setting& setting : declare(settings)) {
    EXPECT_GT(setting.help.size(), 8U) << setting.key;
    EXPECT_EQ(setting.help.find('\n'), std::string_view::npos) << setting.key;
    EXPECT_NE(setting.help.back(), '.') << setting.key;
  }
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
}  // namespace trireme::config
