// Matrices in blocks of few bits. Whether they are bitsandbytes' and GGUF's to the bit is judged by
// tests/checkpoint/blocks_judge.py and tests/formats/gguf_judge.py.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>

#include "trireme/base/error.h"
#include "trireme/ops/blocks/codes.h"
#include "trireme/ops/blocks/gguf.h"
#include "trireme/ops/blocks/part.h"
#include "trireme/ops/blocks/quantize.h"
#include "trireme/ops/products/products.h"

namespace trireme::ops {
namespace {

using base::BlockFormat;

Quantized quantized(BlockFormat format, const std::vector<float>& values, int64_t piece) {
  Quantizer quantizer(format, std::ssize(values));
  for (int64_t begin = 0; begin < std::ssize(values); begin += piece)
    quantizer.add(begin, std::min(piece, std::ssize(values) - begin), values.data() + begin);
  return quantizer.finish();
}

std::vector<float> normal_values(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

// What bitsandbytes 0.50.1 makes of these values.
TEST(Blocks, HaveTheBytesOfBitsandbytes) {
  const std::vector<float> values = {0.f, -0.f, 1e-6f, -1e-6f, .5f, 1.f, -1.f};
  EXPECT_EQ(quantized(BlockFormat::fp4, values, 64).codes, (std::vector<uint8_t>{0x00, 0x80, 0x53, 0xb0}));
  EXPECT_EQ(quantized(BlockFormat::nf4, values, 64).codes, (std::vector<uint8_t>{0x77, 0x77, 0xcf, 0x07}));
}

std::vector<uint8_t> gguf_bytes(const Quantized& q) {
  const int64_t blocks = std::ssize(q.scales);
  std::vector<uint8_t> bytes(static_cast<size_t>(blocks * gguf_block_bytes(q.format)));
  write_gguf_blocks(q, 0, blocks, reinterpret_cast<std::byte*>(bytes.data()));
  return bytes;
}

// What quants.py of gguf 0.19.0 makes of one block of numbers; behind it a block of zeros follows.
const std::vector<uint8_t> kBytesOfQ80 = {0x8f, 0x23, 0x81, 0x1e, 0xb8, 0x55, 0xef, 0x89, 0x26, 0xc1, 0x5d, 0xf8,
                                          0x92, 0x2f, 0xc9, 0x66, 0x00, 0x9a, 0x37, 0xd1, 0x6e, 0x08, 0xa3, 0x3f,
                                          0xda, 0x77, 0x11, 0xab, 0x48, 0xe2, 0x7f, 0x19, 0xb4, 0x50};
const std::vector<uint8_t> kBytesOfQ40 = {0x80, 0x33, 0xb0, 0x5a, 0xf3, 0x9d, 0x27, 0xc1, 0x6a, 0xf4, 0x9e, 0x37,
                                          0xd1, 0x6b, 0xf5, 0xae, 0x38, 0xd2, 0x00, 0x80, 0x88, 0x88, 0x88, 0x88,
                                          0x88, 0x88, 0x88, 0x88, 0x88, 0x88, 0x88, 0x88, 0x88, 0x88, 0x88, 0x88};

TEST(Blocks, HaveTheBytesOfGguf) {
  std::vector<float> values(64);
  for (int i = 0; i < 32; ++i) values[static_cast<size_t>(i)] = static_cast<float>(i * 37 % 61 - 30) / 16;
  std::vector<uint8_t> of_q8_0 = kBytesOfQ80;
  of_q8_0.resize(68);
  EXPECT_EQ(gguf_bytes(quantized(BlockFormat::q8_0, values, 32)), of_q8_0);
  EXPECT_EQ(gguf_bytes(quantized(BlockFormat::q4_0, values, 32)), kBytesOfQ40);
}

TEST(Blocks, OfGgufAreKeptBitForBit) {
  std::mt19937 random(5);
  for (const BlockFormat format : {BlockFormat::q8_0, BlockFormat::q4_0}) {
    const auto block = static_cast<size_t>(gguf_block_bytes(format));
    std::vector<uint8_t> bytes(300 * block);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(random());
    for (size_t i = 0; i < bytes.size(); i += block) bytes[i + 1] &= 0xBF;  // a scale that is finite, of any sign
    const Quantized q = read_gguf_blocks(format, std::as_bytes(std::span(bytes)));
    EXPECT_EQ(q.elements, 300 * 32);
    EXPECT_EQ(gguf_bytes(q), bytes);
    // The record of a part has them too.
    const BlockPart part = whole_part(format, 30, 320);
    std::vector<uint8_t> record(static_cast<size_t>(part.record_bytes()));
    write_record(q, part, record.data());
    BlockRecords records;
    records.add(part, record.data());
    const at::Tensor wide = at::empty({30, 320}), wanted = at::empty({30, 320});
    widen(wide, records.matrix());
    dequantize(q, 0, q.elements, wanted.data_ptr<float>());
    EXPECT_EQ(std::memcmp(wide.data_ptr(), wanted.data_ptr(), wanted.nbytes()), 0);
    bytes[1] |= 0x7C;
    EXPECT_THROW(read_gguf_blocks(format, std::as_bytes(std::span(bytes))), ShapeError);
  }
}

TEST(Blocks, OfAMatrixThatArrivesInPiecesAreThoseOfTheWhole) {
  const std::vector<float> values = normal_values(64 * 700 + 13, 1);
  for (const base::BlockFormatTraits& row : base::kBlockFormats) {
    if (!row.blocks()) continue;
    const Quantized whole = quantized(row.format, values, std::ssize(values)),
                    pieces = quantized(row.format, values, 640);
    EXPECT_EQ(whole.codes, pieces.codes) << row.name;
    EXPECT_EQ(whole.scales, pieces.scales) << row.name;
    EXPECT_EQ(whole.nested_codes, pieces.nested_codes) << row.name;
    EXPECT_EQ(whole.nested_scales, pieces.nested_scales) << row.name;
    EXPECT_EQ(whole.scales.empty(), row.nested);
  }
}

TEST(Blocks, AreAsCloseAsTheirCodes) {
  const std::vector<float> values = normal_values(64 * 512, 2);
  for (const base::BlockFormatTraits& row : base::kBlockFormats) {
    if (!row.blocks()) continue;
    std::vector<float> back(values.size());
    dequantize(quantized(row.format, values, 64), 0, std::ssize(values), back.data());
    double squares = 0, error = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      squares += double(values[i]) * values[i];
      error += std::pow(double(values[i]) - back[i], 2);
    }
    EXPECT_LT(std::sqrt(error / squares), row.code == "nf4" ? 0.095 : 0.125) << row.name;
  }
}

TEST(Blocks, RefuseValuesThatAreNotFinite) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> values = normal_values(200, 3);
    values[150] = bad;
    for (const BlockFormat format : {BlockFormat::nf4, BlockFormat::q8_0, BlockFormat::q4_0})
      EXPECT_THROW(quantized(format, values, 64), ShapeError);
  }
  // Scales of GGUF's formats are float16.
  EXPECT_THROW(quantized(BlockFormat::q8_0, {65536.0f * 127}, 64), ShapeError);
  EXPECT_THROW(quantized(BlockFormat::q4_0, {65536.0f * 8}, 64), ShapeError);
  EXPECT_EQ(quantized(BlockFormat::q4_0, {65504.0f * 8}, 64).scales.front(), -65504.0f);
}

TEST(Blocks, NameTheTensorThatHasNone) {
  const auto read = [](int64_t begin, int64_t end, float* values) {
    std::fill(values, values + (end - begin), begin == 0 ? 1.0f : std::numeric_limits<float>::infinity());
  };
  const int64_t one_piece = 1 << 20;
  EXPECT_EQ(quantize(BlockFormat::nf4, one_piece, "m", read).codes,
            quantized(BlockFormat::nf4, std::vector<float>(one_piece, 1.0f), one_piece).codes);
  try {
    quantize(BlockFormat::nf4, one_piece + 64, "model.weight", read);
    FAIL() << "an infinite value has no block";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("model.weight cannot be quantized: a value is infinite"));
  }
}

TEST(Blocks, TheDynamicMapIsAscendingAndHasBothEnds) {
  for (const bool is_signed : {true, false}) {
    const EightBitCode& code = dynamic_code(is_signed);
    EXPECT_TRUE(std::is_sorted(code.begin(), code.end()));
    EXPECT_EQ(code[255], 1);
    EXPECT_EQ(dynamic_byte(is_signed, 2), 255);
    EXPECT_NEAR(code[dynamic_byte(is_signed, 0)], 0, 3e-5);  // its table has no place for 0 itself
  }
}

/// A part of a quantized matrix, and the same elements of the whole matrix.
struct Held {
  std::vector<uint8_t> record;
  BlockRecords matrix;
  at::Tensor dense;  ///< float32
};

Held held(const Quantized& q, const BlockPart& part) {
  Held h;
  h.record.resize(static_cast<size_t>(part.record_bytes()));
  write_record(q, part, h.record.data());
  h.matrix.add(part, h.record.data());
  at::Tensor whole = at::empty({part.rows, part.columns});
  dequantize(q, 0, q.elements, whole.data_ptr<float>());
  std::vector<at::Tensor> rows;
  for (const BlockPart::Span& span : part.row_spans) rows.push_back(whole.narrow(0, span.begin, span.size()));
  h.dense = at::cat(rows).narrow(1, part.column_span.begin, part.column_span.size()).contiguous();
  return h;
}

/// All of a matrix, rows of it, and columns that do and do not begin with a block.
std::vector<BlockPart> parts_of(base::BlockFormat format, int64_t rows, int64_t columns) {
  std::vector<BlockPart> parts(4, whole_part(format, rows, columns));
  parts[1].row_spans = {{rows / 4, rows / 2}, {rows / 2 + 1, rows}};
  parts[2].column_span = {0, columns / 4 * 2};
  parts[3].column_span = {columns / 4 * 2, columns};
  return parts;
}

TEST(Blocks, OfAPartAreThoseOfTheWhole) {
  for (const base::BlockFormatTraits& row : base::kBlockFormats) {
    if (!row.blocks()) continue;
    for (const int64_t columns : {128, 96, 90, 20, 2}) {
      const int64_t rows = 37;
      const Quantized q = quantized(row.format, normal_values(rows * columns, 7), 64 * 5);
      for (const BlockPart& part : parts_of(row.format, rows, columns)) {
        const Held h = held(q, part);
        for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
          const at::Tensor wide = at::empty(h.dense.sizes(), dtype);
          widen(wide, h.matrix.matrix());
          EXPECT_TRUE(at::equal(wide, h.dense.to(dtype)))
              << row.name << columns << " " << part.column_span.begin << dtype;
        }
      }
    }
  }
}

struct ProductInBlocks {
  int64_t m, rows, columns;
  BlockFormat format;
};

TEST(Blocks, ProductsHaveTheBitsOfADenseMatrix) {
  at::manual_seed(3);
  for (const auto& [m, rows, columns, format] : {ProductInBlocks{5, 70, 96, BlockFormat::nf4_nested},
                                                 {65, 131, 130, BlockFormat::nf4_nested},
                                                 {200, 256, 4224, BlockFormat::nf4_nested},
                                                 {5, 70, 96, BlockFormat::q8_0},
                                                 {65, 131, 160, BlockFormat::q8_0},
                                                 {200, 256, 4224, BlockFormat::q8_0},
                                                 {5, 70, 96, BlockFormat::q4_0},
                                                 {200, 256, 4224, BlockFormat::q4_0}}) {
    const Quantized q = quantized(format, normal_values(rows * columns, 9), 64 * 50);
    for (const BlockPart& part : parts_of(q.format, rows, columns)) {
      const Held h = held(q, part);
      for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf})
        for (const bool transposed : {true, false}) {
          const at::Tensor dense = transposed ? h.dense.to(dtype).t() : h.dense.to(dtype);
          const at::Tensor a = at::randn({m, dense.size(0)}).to(dtype), c = at::empty({m, dense.size(1)}, dtype),
                           expected = at::empty_like(c);
          for (const GemmKernel* kernel : gemm_kernels(dtype)) {
            if (!multiply_by(*kernel, expected, a, dense)) continue;
            // Products of whole numbers and scales stay as exact as the kernel's arithmetic.
            if (h.matrix.matrix().numbers && kernel->k_multiple == 1) {
              const at::Tensor wide = at::empty_like(c, at::kFloat);
              for (const GemmKernel* same : gemm_kernels(at::kFloat))
                if (std::string_view(same->name) == kernel->name)
                  multiply_by(*same, wide, a.to(at::kFloat), transposed ? h.dense.t() : h.dense);
              expected.copy_(wide);
            }
            ASSERT_TRUE(multiply_blocks_by(*kernel, c, a, h.matrix.matrix(), transposed));
            EXPECT_TRUE(at::equal(c, expected)) << kernel->name << " " << dtype << transposed << rows << "x" << columns;
          }
          multiply(expected, a, dense);
          multiply_blocks(c, a, h.matrix.matrix(), transposed);
          EXPECT_LE((c - expected).abs().max().item<double>(), 1e-2 * expected.abs().max().item<double>());
        }
      const at::Tensor a = at::randn({m, part.num_columns()}, at::kDouble),
                       c = at::empty({m, part.num_rows()}, at::kDouble);
      multiply_blocks(c, a, h.matrix.matrix(), true);
      EXPECT_TRUE(at::allclose(c, a.mm(h.dense.to(at::kDouble).t()), 1e-12, 1e-12));
    }
  }
}

TEST(Blocks, NeedTheirBitsAndThoseOfTheirScales) {
  const int64_t n = 4096 * 4096;
  EXPECT_EQ(whole_part(BlockFormat::nf4, 4096, 4096).record_bytes(), n / 2 + n / 16);
  EXPECT_EQ(whole_part(BlockFormat::nf4_nested, 4096, 4096).record_bytes(), n / 2 + n / 64 + n / 64 / 256 * 4 + 4);
  EXPECT_EQ(whole_part(BlockFormat::q4_0, 4096, 4096).record_bytes(), n / 2 + n / 16);
  EXPECT_EQ(whole_part(BlockFormat::q8_0, 4096, 4096).record_bytes(), n + n / 16);
}

}  // namespace
}  // namespace trireme::ops
