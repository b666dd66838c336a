#include "trireme/base/text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace trireme::base {
namespace {

TEST(Text, EditDistanceCountsASwapOfNeighboursAsOne) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("strategy", "stratgey"), 1);
  EXPECT_EQ(edit_distance("strategy", "stratgey", 1), 1);
  EXPECT_GT(edit_distance("kitten", "sitting", 2), 2);
  EXPECT_EQ(edit_distance("ca", "abc"), 3);  // optimal string alignment, not full Damerau
}

TEST(Text, NearestFindsATypoAndKeepsQuietOtherwise) {
  const std::vector<std::string> names = {"optimizer.lr", "train.micro_batch_size", "seed"};
  EXPECT_EQ(nearest("train.micro_batch_szie", names), "train.micro_batch_size");
  EXPECT_EQ(nearest("sed", names), "seed");
  EXPECT_EQ(nearest("completely_else", names), std::nullopt);
  EXPECT_EQ(nearest("x", {}), std::nullopt);
}

TEST(Text, NearestTakesTheEarlierOfTwoEquallyNear) {
  const std::vector<std::string> names = {"mesh.pp", "mesh.tp"};
  EXPECT_EQ(nearest("mesh.xp", names), "mesh.pp");
}

TEST(Text, BytesHaveThreeDigits) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(512), "512 B");
  EXPECT_EQ(human_bytes(4096), "4.00 KiB");
  EXPECT_EQ(human_bytes(int64_t{412} << 20), "412 MiB");
  EXPECT_EQ(human_bytes((int64_t{1} << 20) - 1), "1.00 MiB");
  EXPECT_EQ(human_bytes(int64_t{20} << 30), "20.0 GiB");
}

TEST(Text, CountsAreGroupedByThree) {
  EXPECT_EQ(human_count(0), "0");
  EXPECT_EQ(human_count(999), "999");
  EXPECT_EQ(human_count(12430), "12,430");
  EXPECT_EQ(human_count(-1000), "-1,000");
  EXPECT_EQ(human_count(-100), "-100");
  EXPECT_EQ(human_count(std::numeric_limits<int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(Text, QuantitiesAndPlurals) {
  EXPECT_EQ(human_quantity(4.95e6), "4.95 M");
  EXPECT_EQ(human_quantity(812), "812");
  EXPECT_EQ(human_quantity(999999), "1.00 M");
  EXPECT_EQ(human_quantity(1e30), "1e+30");
  EXPECT_EQ(plural(1, "rank"), "1 rank");
  EXPECT_EQ(plural(0, "rank"), "0 ranks");
  EXPECT_EQ(plural(12430, "token"), "12,430 tokens");
}

TEST(Text, AFileInThePlaceOfAFolderIsToldTheWayToOne) {
  EXPECT_EQ(make_a_folder_of("a/m.gguf"),
            "a/m.gguf is a file; make a model's folder of it: trireme convert a/m.gguf OUT");
  EXPECT_EQ(make_a_folder_of("my models/m.gguf"),
            "my models/m.gguf is a file; make a model's folder of it: trireme convert 'my models/m.gguf' OUT");
  EXPECT_EQ(make_a_folder_of("model.safetensors"),
            "model.safetensors is one safetensors file: name its folder, where config.json is");
}

TEST(Text, WhatStandsInXmlIsEscaped) {
  EXPECT_EQ(escape_xml("a < b & \"c\" > d"), "a &lt; b &amp; &quot;c&quot; &gt; d");
  EXPECT_EQ(escape_xml("tab\tbell\aline\nend"), "tab bell line\nend");
}

TEST(Text, DurationsShowTwoUnits) {
  EXPECT_EQ(human_duration(0.42), "0.4s");
  EXPECT_EQ(human_duration(41.2), "41s");
  EXPECT_EQ(human_duration(59.7), "1m00s");
  EXPECT_EQ(human_duration(161), "2m41s");
  EXPECT_EQ(human_duration(3 * 3600 + 7 * 60), "3h07m");
  EXPECT_EQ(human_duration(2 * 86400 + 4 * 3600), "2d04h");
  EXPECT_EQ(human_duration(8.64e20), "1e+16d");
  EXPECT_EQ(human_duration(-3), "0.0s");
  EXPECT_EQ(human_duration(std::nan("")), "?");
}

}  // namespace
}  // namespace trireme::base
