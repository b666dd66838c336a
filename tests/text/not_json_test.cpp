#include "trireme/text/not_json.h"

#include <gtest/gtest.h>

namespace trireme::text {
namespace {

TEST(NotJson, ABrokenLineIsToldFromOneInAnotherEncoding) {
  EXPECT_EQ(why_not_json("{\"text\": \"caf\u00e9\""), "not JSON");
  EXPECT_EQ(why_not_json(""), "not JSON");
  EXPECT_EQ(why_not_json("{\"text\": \"caf\xe9\"}"), "not UTF-8 (byte 14); convert the file, for instance with iconv");
  EXPECT_EQ(why_not_json("\xff\xfe{"), "not UTF-8 (byte 1); convert the file, for instance with iconv");
}

}  // namespace
}  // namespace trireme::text
