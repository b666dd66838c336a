#include "trireme/store/table.h"

#include <gtest/gtest.h>

#include <limits>

namespace trireme::store {
namespace {

TEST(Table, ANumberThatWouldOverflowStays) {
  Table table;
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(table.answer({.operation = Operation::add, .keys = {"n"}, .number = kMost}).number, kMost);
  EXPECT_EQ(table.answer({.operation = Operation::add, .keys = {"n"}, .number = 1}).status, Reply::Status::refused);
  EXPECT_EQ(table.answer({.operation = Operation::add, .keys = {"n"}, .number = 0}).number, kMost);
}

TEST(Table, CompareSetOfAnEmptyValueIsNotCompareSetOfNone) {
  Table table;
  table.answer({.operation = Operation::set, .keys = {"empty"}});
  EXPECT_EQ(table.answer({.operation = Operation::compare_set, .keys = {"empty"}, .value = "v", .expected = "x"}).value,
            "");
  EXPECT_EQ(table.answer({.operation = Operation::compare_set, .keys = {"empty"}, .value = "v"}).value, "v");
}

}  // namespace
}  // namespace trireme::store
