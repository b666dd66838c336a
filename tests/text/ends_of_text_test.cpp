#include "trireme/text/ends_of_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/text/chat_vocabularies.h"
#include "trireme/text/byte_tokenizer.h"

namespace trireme::text {
namespace {

using nlohmann::json;

constexpr const char* kName = "generation_config.json";

json added(int32_t id, const std::string& config, std::map<std::string, std::string> files) {
  const PipelineTokenizer tokenizer = test::byte_level_tokenizer();
  add_end_of_text(id, tokenizer, config, files);
  return files.contains(kName) ? json::parse(files[kName]) : json();
}

TEST(EndsOfText, AreAddedToThoseThatTheFileHas) {
  EXPECT_EQ(added(7, R"({"eos_token_id": 2})", {{kName, R"({"eos_token_id": 2, "top_p": 0.9})"}}),
            (json{{"eos_token_id", {2, 7}}, {"top_p", 0.9}}));
  EXPECT_EQ(added(7, "", {{kName, R"({"_from_model_config": true, "eos_token_id": [2, 3]})"}}),
            (json{{"eos_token_id", {2, 3, 7}}}));
}

TEST(EndsOfText, WithoutTheFileThoseOfTheConfigurationStay) {
  EXPECT_EQ(added(7, R"({"eos_token_id": 2, "bos_token_id": 1})", {}),
            (json{{"bos_token_id", 1}, {"eos_token_id", {2, 7}}}));
}

TEST(EndsOfText, WithNoneTheTokenizersIsOne) {
  const int32_t eos = *test::byte_level_tokenizer().eos_id();
  EXPECT_EQ(added(7, "", {}), (json{{"eos_token_id", {eos, 7}}}));
  EXPECT_EQ(added(eos, "", {}), (json{{"eos_token_id", {eos}}})) << "transformers does not ask the tokenizer";
}

TEST(EndsOfText, ChangeNothingWhereTransformersFindsThem) {
  const std::string file = R"({"eos_token_id": [7, 2]})";
  std::map<std::string, std::string> files = {{kName, file}};
  add_end_of_text(7, test::byte_level_tokenizer(), R"({"eos_token_id": 2})", files);
  EXPECT_EQ(files[kName], file);
  EXPECT_EQ(added(7, R"({"eos_token_id": 7})", {}), json());
  EXPECT_EQ(added(7, R"({"eos_token_id": 7})", {{kName, "{}"}}), (json{{"eos_token_id", {7}}}))
      << "beside this file transformers does not read config.json";
}

TEST(EndsOfText, OfAReplyAreTheTemplatesOrTheTokenizers) {
  const PipelineTokenizer tokenizer = test::byte_level_tokenizer();
  EXPECT_EQ(end_of_reply(find_chat_family("chatml"), tokenizer), tokenizer.token_id("<|im_end|>"));
  EXPECT_EQ(end_of_reply(find_chat_family("alpaca"), tokenizer), tokenizer.eos_id());
  const ByteTokenizer bytes;
  EXPECT_EQ(end_of_reply(find_chat_family("chatml"), bytes), std::nullopt);
  EXPECT_EQ(end_of_reply(find_chat_family("alpaca"), bytes), std::nullopt) << "a line break ends no reply";
}

}  // namespace
}  // namespace trireme::text
