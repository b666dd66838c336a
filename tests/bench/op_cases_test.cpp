#include "trireme/bench/op_cases.h"

#include <gtest/gtest.h>

#include <string_view>

namespace trireme::bench {
namespace {

constexpr Widths kSmall{.D = 64, .F = 96, .H = 4, .K = 2, .d = 16, .V = 256, .S = 512, .dtype = at::kFloat};

MemoryCase case_of(std::string_view name) {
  for (const MemoryCase& c : memory_cases())
    if (c.name == name) return c;
  ADD_FAILURE() << "no case " << name;
  return {};
}

// Queries and keys read and written, cosines and sines read, 4 bytes each.
TEST(OpCases, ARotationReadsTheRowsOfItsTablesThatItsPositionsNeed) {
  const double row = 2 * (4 + 2) * 16 * 4, table_row = 16 * 4;
  for (const char* name : {"rotary_forward", "rotary_backward"}) {
    const MemoryCase c = case_of(name);
    EXPECT_EQ(c.moved_bytes(kSmall, 100), 100 * (row + table_row)) << name;
    EXPECT_EQ(c.moved_bytes(kSmall, 512), 512 * (row + table_row)) << name;
    EXPECT_EQ(c.moved_bytes(kSmall, 4 * 512), 4 * 512 * row + 512 * table_row) << name;
  }
}

TEST(OpCases, RowsAreAsManyAsMoveTheBytesAskedFor) {
  for (const MemoryCase& c : memory_cases()) {
    for (const int64_t bytes : {int64_t{1} << 18, int64_t{1} << 20, int64_t{1} << 26}) {
      const int64_t rows = c.rows_for(kSmall, bytes);
      EXPECT_TRUE(rows < kSmall.S || rows % kSmall.S == 0) << c.name;
      if (rows == 8) continue;  // the least
      EXPECT_LE(c.moved_bytes(kSmall, rows), static_cast<double>(bytes)) << c.name;
      EXPECT_GT(c.moved_bytes(kSmall, rows < kSmall.S ? rows + 1 : rows + kSmall.S), static_cast<double>(bytes))
          << c.name << ", " << rows << " rows";
    }
  }
}

}  // namespace
}  // namespace trireme::bench
