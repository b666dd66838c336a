// Products with a packed matrix in blocks: the bits of multiply_blocks().
#include "trireme/ops/products/packed_blocks.h"

#include <cstdlib>
#include <random>

#include "support.h"
#include "trireme/base/error.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/products/products.h"

namespace trireme::ops::test {
namespace {

using base::BlockFormat;

at::Tensor aligned_bytes(int64_t count) {
  const at::Tensor memory = at::full({count + 64}, 0xff, at::kByte);
  const auto beyond = static_cast<int64_t>(reinterpret_cast<uintptr_t>(memory.const_data_ptr()) % 64);
  return memory.narrow(0, (64 - beyond) % 64, count);
}

/// What a rank holds of some matrices, one below the other.
struct Matrices {
  std::vector<std::vector<uint8_t>> records;
  BlockRecords all;
  std::vector<BlockRecords> each;

  void add(const BlockPart& part, const at::Tensor& values) {
    Quantizer quantizer(part.format, values.numel());
    quantizer.add(0, values.numel(), values.data_ptr<float>());
    records.emplace_back(static_cast<size_t>(part.record_bytes()));
    write_record(quantizer.finish(), part, records.back().data());
    all.add(part, records.back().data());
    each.emplace_back().add(part, records.back().data());
  }
};

at::Tensor some_weights(const BlockPart& part, int64_t seed) {
  return random({part.rows, part.columns}, at::kFloat, seed) * 0.02;
}

struct CaseInBlocks {
  int64_t m;
  BlockPart first, second;
  at::ScalarType dtype, out;
};

void check(const CaseInBlocks& c) {
  Matrices w;
  w.records.reserve(2);
  w.add(c.first, some_weights(c.first, 1));
  w.add(c.second, some_weights(c.second, 2));
  const int64_t n = w.all.matrix().rows, k = w.all.matrix().columns;
  const at::Tensor a = random({c.m, k + 3}, c.dtype, 3).narrow(1, 2, k);
  for (const GemmKernel* kernel : gemm_kernels(c.dtype)) {
    const at::Tensor expected = unwritten({c.m, n}, c.out);
    ASSERT_TRUE(multiply_blocks_by(*kernel, expected, a, w.all.matrix(), true));
    expect_same_on_all_threads([&] {
      const PackedBlocks packed{aligned_bytes(packed_block_bytes(n, k, c.first.format)), n, k, c.dtype, c.first.format};
      pack_by(*kernel, packed, w.each[0].matrix());
      pack_by(*kernel, packed, w.each[1].matrix(), w.each[0].matrix().rows);
      const at::Tensor found = unwritten({c.m, n}, c.out);
      multiply_packed_by(*kernel, found, a, packed);
      expect_same_bits(found, expected,
                       std::string(kernel->name) + ": " + c10::toString(c.dtype) + " [" + std::to_string(c.m) + ", " +
                           std::to_string(k) + "] x [" + std::to_string(n) + ", " + std::to_string(k) + "]");
      return std::vector{found};
    });
  }
  // As callers do it; LibTorch's products have bits of their own.
  const PackedBlocks packed{aligned_bytes(packed_block_bytes(n, k, c.first.format)), n, k, c.dtype, c.first.format};
  pack(packed, w.each[0].matrix());
  pack(packed, w.each[1].matrix(), w.each[0].matrix().rows);
  const at::Tensor found = unwritten({c.m, n}, c.out), expected = unwritten({c.m, n}, c.out);
  multiply_packed(found, a, packed);
  multiply_blocks(expected, a, w.all.matrix(), true);
  expect_close(found, expected, "multiply_packed");
}

TEST(PackedBlocks, ProductsHaveTheBitsOfMultiplyBlocks) {
  std::mt19937 any(11);
  const auto below = [&](int64_t end) { return std::uniform_int_distribution<int64_t>(0, end - 1)(any); };
  const bool slow = std::getenv("TRIREME_SLOW") != nullptr;
  const BlockFormat formats[] = {BlockFormat::nf4,        BlockFormat::nf4_nested, BlockFormat::fp4,
                                 BlockFormat::fp4_nested, BlockFormat::q8_0,       BlockFormat::q4_0};
  for (int i = 0; i < (slow ? 200 : 20); ++i)
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      const int64_t rows[] = {1, 1 + below(12), 1 + below(64), 1 + below(slow ? 900 : 200)};
      const BlockFormat format = formats[below(6)];
      const int64_t values = base::traits_of(format).values, columns = values * (1 + below(i % 3 == 0 ? 60 : 6));
      CaseInBlocks c{.m = rows[below(4)],
                     .first = whole_part(format, 2 + below(150), columns),
                     .second = {},
                     .dtype = dtype,
                     .out = is_narrow(dtype) && below(2) == 0 ? at::kFloat : dtype};
      c.second = whole_part(c.first.format, 1 + below(90), columns);
      if (below(2) == 0) c.first.row_spans = {{0, c.first.rows / 3}, {c.first.rows / 2, c.first.rows}};
      if (below(3) == 0 && columns > values) {
        c.first.column_span.begin = c.second.column_span.begin = values * below(columns / values);
        c.first.row_spans = {{0, c.first.rows}};
      }
      ASSERT_TRUE(packs_blocks(c.first) && packs_blocks(c.second));
      check(c);
    }
}

// Rows of a packed matrix are the matrix.
TEST(PackedBlocks, RowsAreReadAsProductsWidenThem) {
  for (const BlockFormat format : {BlockFormat::nf4, BlockFormat::fp4_nested, BlockFormat::q8_0, BlockFormat::q4_0})
    for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
      const BlockPart part = whole_part(format, 131, 192);
      Matrices w;
      w.add(part, some_weights(part, 4));
      const at::Tensor all = unwritten({131, 192}, dtype);
      widen(all, w.all.matrix());
      const at::Tensor ids = at::randint(131, {300}, at::kLong), found = unwritten({300, 192}, dtype);
      ids[7] = -1;
      const at::Tensor expected = all.index_select(0, ids.clamp_min(0));
      expected[7].zero_();
      const PackedBlocks packed{aligned_bytes(packed_block_bytes(131, 192, format)), 131, 192, dtype, format};
      for (const GemmKernel* kernel : gemm_kernels(dtype)) {
        pack_by(*kernel, packed, w.all.matrix());
        unpack_columns_by(*kernel, found, packed, ids);
        expect_same_bits(found, expected, std::string(kernel->name) + " " + c10::toString(dtype));
      }
      pack(packed, w.all.matrix());
      unpack_columns(found.zero_(), packed, ids);
      expect_same_bits(found, expected, c10::toString(dtype));
      EXPECT_THROW(unpack_columns(found, packed, ids.clone().fill_(131)), ShapeError);
    }
}

TEST(PackedBlocks, DoublesAreWidened) {
  for (const BlockFormat format : {BlockFormat::nf4_nested, BlockFormat::q8_0, BlockFormat::q4_0})
    check({.m = 5,
           .first = whole_part(format, 70, 128),
           .second = whole_part(format, 3, 128),
           .dtype = at::kDouble,
           .out = at::kDouble});
}

// 1 + 2^-8 lies half way between two bfloat16 numbers, the lower of which is even.
TEST(PackedBlocks, HalvesAreRoundedToEven) {
  for (const BlockFormat format : {BlockFormat::nf4, BlockFormat::fp4}) {
    const BlockPart part = whole_part(format, 70, 256);
    const at::Tensor values = random({70, 4, 64}, at::kFloat, 1).clamp(-1, 1);
    values.select(2, 0).fill_(1.00390625f);
    Matrices w;
    w.add(part, values.view({70, 256}));
    for (const int64_t rows : {1, 5, 40})
      for (const GemmKernel* kernel : gemm_kernels(at::kBFloat16)) {
        const at::Tensor a = random({rows, 256}, at::kBFloat16, 2), expected = unwritten({rows, 70}, at::kFloat),
                         found = unwritten({rows, 70}, at::kFloat);
        ASSERT_TRUE(multiply_blocks_by(*kernel, expected, a, w.all.matrix(), true));
        const PackedBlocks packed{aligned_bytes(packed_block_bytes(70, 256, format)), 70, 256, at::kBFloat16, format};
        pack_by(*kernel, packed, w.all.matrix());
        multiply_packed_by(*kernel, found, a, packed);
        expect_same_bits(found, expected, kernel->name);
      }
  }
}

// Rows of 96 elements: every second one begins inside a block.
TEST(PackedBlocks, OutsideTheirRowsBecomeAMatrixOfTheComputeDtype) {
  const BlockPart part = whole_part(BlockFormat::nf4, 300, 96);
  EXPECT_FALSE(packs_blocks(part));
  Matrices w;
  w.add(part, some_weights(part, 1));
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const PackedMatrix packed{aligned_bytes(packed_bytes(300, 96, dtype)), 300, 96, dtype};
    pack(packed, w.all.matrix());
    const at::Tensor a = random({3, 96}, dtype, 2), found = unwritten({3, 300}, dtype),
                     expected = unwritten({3, 300}, dtype);
    multiply_packed(found, a, packed);
    multiply_blocks(expected, a, w.all.matrix(), true);
    expect_close(found, expected, c10::toString(dtype));
  }
  const PackedBlocks packed{aligned_bytes(packed_block_bytes(300, 128, part.format)), 300, 128, at::kFloat,
                            part.format};
  EXPECT_THROW(pack(packed, w.all.matrix()), ShapeError);
}

TEST(PackedBlocks, NeedFourOrEightBitsAndAHalf) {
  EXPECT_EQ(packed_block_bytes(4096, 4096, BlockFormat::nf4_nested), 4096 * 4096 / 16 * 9 + 256);
  EXPECT_EQ(packed_block_bytes(4096, 4096, BlockFormat::q4_0), 4096 * 4096 / 16 * 9 + 256);
  EXPECT_EQ(packed_block_bytes(4096, 4096, BlockFormat::q8_0), 4096 * 4096 / 16 * 17 + 256);
}

}  // namespace
}  // namespace trireme::ops::test
