#include "trireme/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::base {
namespace {

std::string nested(int levels, const std::string& open = "[", const std::string& close = "]") {
  std::string text;
  for (int i = 0; i < levels; ++i) text += open;
  text += "1";
  for (int i = 0; i < levels; ++i) text += close;
  return text;
}

TEST(Json, DepthIsCountedOutsideOfStringsOnly) {
  EXPECT_FALSE(json_too_deep_at(nested(kDeepestJson)));
  EXPECT_EQ(json_too_deep_at(nested(kDeepestJson + 1)), kDeepestJson);
  EXPECT_FALSE(json_too_deep_at("\"" + std::string(1000, '[') + "\""));
  EXPECT_FALSE(json_too_deep_at("\"\\\"" + std::string(1000, '{') + "\""));
  std::string many = "[";
  for (int i = 0; i < 1000; ++i) many += "[],";
  EXPECT_FALSE(json_too_deep_at(many + "1]")) << "beside each other is not below each other";
}

TEST(Json, WhatNestsTooDeepIsAnErrorAndNeverAValue) {
  for (const std::string& text : {nested(300'000), nested(300'000, "{\"a\":", "}"), std::string(300'000, '[')}) {
    EXPECT_THROW(parse_json(text), nlohmann::json::parse_error);
    EXPECT_THROW(parse_json<nlohmann::ordered_json>(text), nlohmann::ordered_json::parse_error);
    EXPECT_TRUE(parse_json_if_sound(text).is_discarded());
  }
  EXPECT_EQ(parse_json(nested(50)).dump(), nested(50));
  EXPECT_EQ(parse_json_if_sound("{\"a\": [1]}")["a"][0], 1);
  EXPECT_TRUE(parse_json_if_sound("{").is_discarded());
}

TEST(Json, AWholeNumberIsNeitherAFractionNorBeyond64Bits) {
  EXPECT_EQ(whole_number(parse_json("-9223372036854775808")), INT64_MIN);
  EXPECT_EQ(whole_number(parse_json("9223372036854775807")), INT64_MAX);
  for (const char* text : {"9223372036854775808", "104857677777777777777777777777777", "1e3", "1.5", "\"1\"", "null"})
    EXPECT_THROW(whole_number(parse_json(text)), nlohmann::json::type_error) << text;
  EXPECT_TRUE(is_whole_number(parse_json("9223372036854775807")));
  EXPECT_FALSE(is_whole_number(parse_json("9223372036854775808"))) << "Json::get would make it negative";
}

}  // namespace
}  // namespace trireme::base
