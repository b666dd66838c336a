#include "trireme/checkpoint/layout.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "fixtures.h"
#include "trireme/base/error.h"

namespace trireme::checkpoint {
namespace {

TEST(Layout, OneFileHasHuggingFacesNameAndNoIndex) {
  const Layout layout = plan_model_files(sample_model());
  ASSERT_EQ(layout.files.size(), 1u);
  EXPECT_EQ(layout.files[0].name, "model.safetensors");
  EXPECT_TRUE(layout.index_name.empty());
}

TEST(Layout, TensorsFillEachFileWithoutHolesAndAligned) {
  for (const int64_t limit : {1, 100, 3000, 4000, 100000}) {
    const Layout layout = plan_model_files(sample_model(), limit);
    std::vector<std::set<std::pair<int64_t, int64_t>>> ranges(layout.files.size());
    for (const auto& [name, place] : layout.tensors) {
      EXPECT_EQ(place.begin % size_of(place.spec.dtype), 0) << name;
      ranges[place.file].emplace(place.begin, place.begin + place.elements * size_of(place.spec.dtype));
    }
    for (size_t i = 0; i < layout.files.size(); ++i) {
      int64_t position = static_cast<int64_t>(layout.files[i].header.size());
      const int64_t data = layout.files[i].bytes - position;
      for (const auto& [begin, end] : ranges[i]) {
        EXPECT_EQ(begin, position);
        position = end;
      }
      EXPECT_EQ(position, layout.files[i].bytes);
      EXPECT_TRUE(data <= limit || ranges[i].size() == 1 || limit == 1)
          << "file " << i << " holds " << data << " of " << limit;
    }
  }
}

TEST(Layout, SeveralFilesHaveAnIndexOfAllTensors) {
  const Layout layout = plan_model_files(sample_model(), 3000);
  ASSERT_EQ(layout.files.size(), 3u);
  EXPECT_EQ(layout.files[1].name, "model-00002-of-00003.safetensors");
  EXPECT_EQ(layout.index_name, "model.safetensors.index.json");
  const auto index = nlohmann::json::parse(layout.index_json);
  int64_t total = 0;
  for (const auto& [name, place] : layout.tensors) {
    EXPECT_EQ(index["weight_map"][name], layout.files[place.file].name);
    total += place.elements * size_of(place.spec.dtype);
  }
  EXPECT_EQ(index["metadata"]["total_size"], total);
  EXPECT_EQ(index["weight_map"].size(), sample_model().size());
}

TEST(Layout, AnIndexFromElsewhereIsTakenOverWhereItNamesTheSameTensorsInTheSameFiles) {
  const std::vector<TensorSpec> tensors = {{.name = "a", .shape = {4}}, {.name = "b", .shape = {4}}};
  const std::string one = "model-00001-of-00003.safetensors", two = "model-00002-of-00003.safetensors";
  const auto index_of = [&](const std::string& given) {
    return plan_model_files(tensors, kDefaultShardBytes, {{"a", one}, {"b", two}}, given).index_json;
  };
  const std::string same =
      R"({"weight_map": {"b": ")" + two + R"(", "a": ")" + one + R"("}, "metadata": {"made": "by hand"}})";
  EXPECT_EQ(index_of(same), same);
  const std::string ours = index_of("");
  EXPECT_EQ(nlohmann::json::parse(ours)["weight_map"], nlohmann::json::parse(same)["weight_map"]);
  // A mask that was left out had a file of its own: the folder has none of that name.
  auto more = nlohmann::json::parse(same);
  more["weight_map"]["mask"] = "model-00003-of-00003.safetensors";
  auto swapped = nlohmann::json::parse(same);
  swapped["weight_map"]["a"] = two;
  for (const std::string& other : {more.dump(), swapped.dump(), std::string("{}"), std::string("not JSON")})
    EXPECT_EQ(index_of(other), ours) << other;
}

TEST(Layout, OptimizerStateIsNumberedAndKeyedByParameterName) {
  const std::vector<TensorSpec> state = state_tensors(sample_model(), kAdamW, Dtype::f64);
  const Layout layout = plan_optimizer_files(state);
  EXPECT_EQ(layout.files.at(0).name, "optimizer-00001-of-00001.safetensors");
  EXPECT_EQ(layout.tensors.size(), 3 * sample_model().size());
  EXPECT_EQ(layout.tensors.at("model.norm.weight.exp_avg_sq").spec.dtype, Dtype::f64);
  EXPECT_EQ(layout.tensors.at("model.norm.weight.master").spec.shape, std::vector<int64_t>{23});
  EXPECT_TRUE(plan_optimizer_files({}).files.empty());
}

TEST(Layout, WhatCannotBeLaidOutIsRefused) {
  EXPECT_THROW(plan_model_files(sample_model(), 0), UsageError);
  const std::vector<TensorSpec> twice = {{.name = "a", .shape = {4}}, {.name = "a", .shape = {4}}};
  EXPECT_THROW(plan_model_files(twice, 16), CheckpointError);
  const std::vector<TensorSpec> huge = {{.name = "a", .shape = {int64_t{1} << 62}, .dtype = Dtype::f64}};
  EXPECT_THROW(plan_model_files(huge), ShapeError);
}

}  // namespace
}  // namespace trireme::checkpoint
