#include "trireme/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdlib>
#include <cstring>

#include "fixtures.h"
#include "trireme/base/error.h"

namespace trireme::checkpoint {
namespace {

using testing::HasSubstr;

SafetensorsHeader parse_bytes(const std::string& file) {
  return read_header(
      static_cast<int64_t>(file.size()),
      [&](int64_t offset, std::span<std::byte> target) {
        ASSERT_LE(offset + static_cast<int64_t>(target.size()), static_cast<int64_t>(file.size()))
            << "read beyond the file";
        std::memcpy(target.data(), file.data() + offset, target.size());
      },
      "test.safetensors");
}

/// A file of this JSON and `data_bytes` zeros.
std::string file_of(const std::string& json, size_t data_bytes) {
  const uint64_t length = json.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + json + std::string(data_bytes, '\0');
}

std::string parse_error(const std::string& file) {
  return error_of([&] { parse_bytes(file); });
}

TEST(Safetensors, AWrittenHeaderReadsBack) {
  const std::vector<TensorSpec> tensors = sample_model();
  std::string file = write_header(tensors, {{"format", "pt"}});
  EXPECT_EQ(file.size() % 8, 0u);
  int64_t bytes = 0;
  for (const TensorSpec& tensor : tensors) bytes += num_elements(tensor.shape) * size_of(tensor.dtype);
  const int64_t header_bytes = static_cast<int64_t>(file.size());
  file.resize(file.size() + static_cast<size_t>(bytes));

  const SafetensorsHeader header = parse_bytes(file);
  EXPECT_EQ(header.data_begin, header_bytes);
  EXPECT_EQ(header.metadata.at("format"), "pt");
  int64_t position = header_bytes;
  for (const TensorSpec& tensor : tensors) {
    const TensorEntry& entry = header.tensors.at(tensor.name);
    EXPECT_EQ(entry.dtype, tensor.dtype);
    EXPECT_EQ(entry.shape, tensor.shape);
    EXPECT_EQ(entry.begin, position);
    position = entry.end;
  }
  EXPECT_EQ(position, static_cast<int64_t>(file.size()));
}

TEST(Safetensors, EveryBrokenRuleIsNamed) {
  const std::string one = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  EXPECT_EQ(parse_error(file_of(one, 8)), "no error");
  EXPECT_THAT(parse_error("abc"), HasSubstr("fewer than the 8"));
  EXPECT_THAT(parse_error(file_of(one, 7)), HasSubstr("truncated"));
  EXPECT_THAT(parse_error(file_of(one, 9)), HasSubstr("tensors end at byte"));
  EXPECT_THAT(parse_error(file_of(one, 8).substr(0, 20)), HasSubstr("its header needs"));
  EXPECT_THAT(parse_error(std::string(7, '\xff') + std::string(9, '\0')), HasSubstr("more than the 100,000,000"));
  EXPECT_THAT(parse_error(file_of(" " + one, 8)), HasSubstr("begin with '{'"));
  EXPECT_THAT(parse_error(file_of("{\"a\":", 0)), HasSubstr("not JSON"));
  EXPECT_THAT(parse_error(file_of(R"({"a":7})", 0)), HasSubstr("not an object"));
  EXPECT_THAT(parse_error(file_of(R"({"a":{"dtype":"F32","shape":[2]}})", 8)), HasSubstr("no data_offsets"));
  EXPECT_THAT(parse_error(file_of(R"({"a":{"dtype":"Q9","shape":[2],"data_offsets":[0,8]}})", 8)),
              HasSubstr("unknown dtype Q9"));
  EXPECT_THAT(parse_error(file_of(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8)),
              HasSubstr("does not fill"));
  EXPECT_THAT(parse_error(file_of(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8)),
              HasSubstr("not a size"));
  EXPECT_THAT(parse_error(file_of(R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8)),
              HasSubstr("not a size"));
  EXPECT_THAT(parse_error(file_of(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}})", 8)),
              HasSubstr("2^58"));
  EXPECT_THAT(parse_error(file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8)),
              HasSubstr("[begin, end]"));
  EXPECT_THAT(parse_error(file_of(R"({"__metadata__":{"format":1}})", 0)), HasSubstr("not text"));
  EXPECT_THAT(parse_error(file_of(R"({"a":[[[[[[1]]]]]]})", 0)), HasSubstr("nests"));
}

TEST(Safetensors, OverlapsHolesAndRepeatedNamesAreRefused) {
  const std::string a = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  EXPECT_THAT(parse_error(file_of("{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})", 7)),
              HasSubstr("overlap"));
  EXPECT_THAT(parse_error(file_of("{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[5,9]}})", 9)),
              HasSubstr("hole"));
  EXPECT_THAT(parse_error(file_of("{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4)),
              HasSubstr("overlap"));
  EXPECT_THAT(parse_error(file_of("{" + a + "," + a + "}", 4)), HasSubstr("names 'a' twice"));
  EXPECT_THAT(parse_error(file_of(R"({"a":{"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4)),
              HasSubstr("'dtype' twice"));
}

TEST(Safetensors, NamesThatCannotBeStoredAreRefused) {
  const auto refused = [](std::vector<TensorSpec> tensors) {
    EXPECT_THROW(write_header(tensors, {}), CheckpointError);
  };
  refused({{.name = "a", .shape = {1}}, {.name = "a", .shape = {1}}});
  refused({{.name = "__metadata__", .shape = {1}}});
  refused({{.name = "\xff\xfe", .shape = {1}}});
  const std::vector<TensorSpec> odd = {{.name = "quote \" and \n newline, \xc3\xa4", .shape = {2}}};
  EXPECT_EQ(parse_bytes(write_header(odd, {}) + std::string(8, '\0')).tensors.begin()->first, odd[0].name);
}

TEST(Safetensors, RandomHeadersNeverCrash) {
  // RapidCheck reads its settings once, before its first check in this program; a caller's own come first.
  ::setenv("RC_PARAMS", slow_tests() ? "seed=7 max_success=200000" : "seed=7 max_success=2000", 0);
  EXPECT_TRUE(rc::check("arbitrary bytes", [](const std::string& text) {
    parse_error(file_of(text, 16));
    parse_error(text);
  }));
  const std::string sound = write_header(sample_model(), {{"format", "pt"}}) + std::string(20000, '\0');
  EXPECT_TRUE(rc::check("a sound file with a few bytes changed and cut", [&] {
    std::string file = sound.substr(0, sound.size() - *rc::gen::inRange<size_t>(0, sound.size()));
    for (int i = *rc::gen::inRange(1, 6); i > 0 && !file.empty(); --i) {
      file[*rc::gen::inRange<size_t>(0, std::min<size_t>(file.size(), 900))] = *rc::gen::arbitrary<char>();
    }
    parse_error(file);
  }));
  const auto token = rc::gen::elementOf(std::vector<std::string>{"{",
                                                                 "}",
                                                                 "[",
                                                                 "]",
                                                                 ",",
                                                                 ":",
                                                                 "\"a\"",
                                                                 "\"dtype\"",
                                                                 "\"F32\"",
                                                                 "\"shape\"",
                                                                 "\"data_offsets\"",
                                                                 "0",
                                                                 "8",
                                                                 "-1",
                                                                 "1e400",
                                                                 "18446744073709551615",
                                                                 "4611686018427387904",
                                                                 "\"__metadata__\"",
                                                                 "null",
                                                                 "\"\\ud800\"",
                                                                 " "});
  EXPECT_TRUE(rc::check("token soup", [&] {
    std::string text = "{";
    for (const std::string& part : *rc::gen::container<std::vector<std::string>>(token)) text += part;
    parse_error(file_of(text, 8));
  }));
}

}  // namespace
}  // namespace trireme::checkpoint
