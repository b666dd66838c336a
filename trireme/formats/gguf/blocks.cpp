#include "trireme/formats/gguf/blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "trireme/base/error.h"
#include "trireme/ops/blocks/gguf.h"

namespace trireme::formats {
namespace {

constexpr int64_t kBlock = 32, kLongBlock = 256;
constexpr std::array<GgufTypeInfo, 11> kTypes{{{GgufType::f32, "F32", 1, 4, Dtype::f32},
                                               {GgufType::f16, "F16", 1, 2, Dtype::f16},
                                               {GgufType::bf16, "BF16", 1, 2, Dtype::bf16},
                                               {GgufType::q4_0, "Q4_0", kBlock, 18, Dtype::f32},
                                               {GgufType::q4_1, "Q4_1", kBlock, 20, Dtype::f32},
                                               {GgufType::q5_0, "Q5_0", kBlock, 22, Dtype::f32},
                                               {GgufType::q5_1, "Q5_1", kBlock, 24, Dtype::f32},
                                               {GgufType::q8_0, "Q8_0", kBlock, 34, Dtype::f32},
                                               {GgufType::q4_k, "Q4_K", kLongBlock, 144, Dtype::f32},
                                               {GgufType::q5_k, "Q5_K", kLongBlock, 176, Dtype::f32},
                                               {GgufType::q6_k, "Q6_K", kLongBlock, 210, Dtype::f32}}};

struct Unread {
  uint32_t number;
  std::string_view name;
};
constexpr Unread kUnread[] = {{9, "Q8_1"},    {10, "Q2_K"},    {11, "Q3_K"},  {15, "Q8_K"},   {16, "IQ2_XXS"},
                              {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"},
                              {22, "IQ2_S"},  {23, "IQ4_XS"},  {24, "I8"},    {25, "I16"},    {26, "I32"},
                              {27, "I64"},    {28, "F64"},     {29, "IQ1_M"}, {34, "TQ1_0"},  {35, "TQ2_0"},
                              {39, "MXFP4"},  {40, "NVFP4"},   {41, "Q1_0"}};

float read_half(const std::byte* bytes) {
  float value;
  checkpoint::convert(bytes, Dtype::f16, &value, Dtype::f32, 1);
  return value;
}

int byte_at(const std::byte* bytes, int64_t i) { return std::to_integer<int>(bytes[i]); }
int bit(const std::byte* bytes, int64_t i) { return byte_at(bytes, i / 8) >> (i % 8) & 1; }

int nibble(const std::byte* quants, int64_t i) {  // low nibbles are elements 0..15, high ones 16..31
  const int byte = byte_at(quants, i % 16);
  return i < 16 ? byte & 15 : byte >> 4;
}

void read_q4_0(const std::byte* block, float* values) {
  const float scale = read_half(block);
  for (int64_t i = 0; i < kBlock; ++i) values[i] = scale * static_cast<float>(nibble(block + 2, i) - 8);
}

void read_q4_1(const std::byte* block, float* values) {
  const float scale = read_half(block);
  const float least = read_half(block + 2);
  for (int64_t i = 0; i < kBlock; ++i) values[i] = scale * static_cast<float>(nibble(block + 4, i)) + least;
}

// Four bits of each value, as above, and the fifth bits of all values before them.
void read_q5_0(const std::byte* block, float* values) {
  const float scale = read_half(block);
  for (int64_t i = 0; i < kBlock; ++i)
    values[i] = scale * static_cast<float>((nibble(block + 6, i) | bit(block + 2, i) << 4) - 16);
}

void read_q5_1(const std::byte* block, float* values) {
  const float scale = read_half(block);
  const float least = read_half(block + 2);
  for (int64_t i = 0; i < kBlock; ++i)
    values[i] = scale * static_cast<float>(nibble(block + 8, i) | bit(block + 4, i) << 4) + least;
}

void read_q8_0(const std::byte* block, float* values) {
  const float scale = read_half(block);
  for (int64_t i = 0; i < kBlock; ++i)
    values[i] = static_cast<float>(static_cast<int8_t>(std::to_integer<uint8_t>(block[2 + i]))) * scale;
}

// Part `i` of a long block's 8 parts: its scale and its least value, 6 bits each, in units of the block's two. Bytes 0
// to 3 hold the scales of parts 0 to 3, bytes 4 to 7 their least values; their upper two bits belong to parts 4 to 7,
// whose lower four bits are in bytes 8 to 11.
struct PartScale {
  float scale, least;
};
PartScale part_scale(const std::byte* block, int64_t i) {
  const std::byte* packed = block + 4;
  const int low = byte_at(packed, i % 4), high = byte_at(packed, 4 + i % 4), rest = byte_at(packed, 8 + i % 4);
  const int scale = i < 4 ? low & 63 : (rest & 15) | (low >> 2 & 48);
  const int least = i < 4 ? high & 63 : rest >> 4 | (high >> 2 & 48);
  return {read_half(block) * static_cast<float>(scale), read_half(block + 2) * static_cast<float>(least)};
}

// Two neighbouring parts of 32 share 32 bytes: the first has the low nibbles.
void read_long(const std::byte* block, const std::byte* fifth_bits, const std::byte* quants, float* values) {
  for (int64_t part = 0; part < 8; ++part) {
    const PartScale of = part_scale(block, part);
    for (int64_t i = 0; i < 32; ++i) {
      int quant = byte_at(quants, part / 2 * 32 + i) >> (part % 2 * 4) & 15;
      if (fifth_bits != nullptr) quant |= (byte_at(fifth_bits, i) >> part & 1) << 4;
      const float product = of.scale * static_cast<float>(quant);
      values[part * 32 + i] = product - of.least;
    }
  }
}

void read_q4_k(const std::byte* block, float* values) { read_long(block, nullptr, block + 16, values); }
void read_q5_k(const std::byte* block, float* values) { read_long(block, block + 16, block + 48, values); }

// 16 parts of 16 values with signed scales. A half of 128 values shares 64 bytes of low nibbles and 32 of upper bits.
void read_q6_k(const std::byte* block, float* values) {
  const std::byte *upper = block + 128, *scales = block + 192;
  const float scale = read_half(block + 208);
  for (int64_t i = 0; i < kLongBlock; ++i) {
    const int64_t half = i / 128, quarter = i % 128 / 32, column = i % 32;
    const int low = byte_at(block, half * 64 + quarter % 2 * 32 + column) >> (quarter / 2 * 4) & 15;
    const int high = byte_at(upper, half * 32 + column) >> (quarter * 2) & 3;
    const float of_part = scale * static_cast<float>(static_cast<int8_t>(byte_at(scales, i / 16)));
    values[i] = of_part * static_cast<float>((low | high << 4) - 32);
  }
}

using Reader = void (*)(const std::byte* block, float* values);
Reader reader_of(GgufType type) {
  switch (type) {
    case GgufType::q4_0:
      return read_q4_0;
    case GgufType::q4_1:
      return read_q4_1;
    case GgufType::q5_0:
      return read_q5_0;
    case GgufType::q5_1:
      return read_q5_1;
    case GgufType::q8_0:
      return read_q8_0;
    case GgufType::q4_k:
      return read_q4_k;
    case GgufType::q5_k:
      return read_q5_k;
    case GgufType::q6_k:
      return read_q6_k;
    default:
      return nullptr;
  }
}

}  // namespace

const GgufTypeInfo* find_gguf_type(uint32_t number) {
  const auto found = std::find_if(kTypes.begin(), kTypes.end(), [&](const GgufTypeInfo& known) {
    return static_cast<uint32_t>(known.type) == number;
  });
  return found == kTypes.end() ? nullptr : &*found;
}

const GgufTypeInfo& info(GgufType type) { return *find_gguf_type(static_cast<uint32_t>(type)); }

std::string gguf_type_name(uint32_t number) {
  if (const GgufTypeInfo* known = find_gguf_type(number)) return std::string(known->name);
  for (const Unread& unread : kUnread)
    if (unread.number == number) return std::string(unread.name);
  return fmt::format("number {}", number);
}

void dequantize(GgufType type, const std::byte* blocks, float* values, int64_t num_blocks) {
  const Reader read = reader_of(type);
  check_invariant(read != nullptr, "only blocks are dequantised");
  const GgufTypeInfo& size = info(type);
  for (int64_t i = 0; i < num_blocks; ++i) read(blocks + i * size.block_bytes, values + i * size.block_elements);
}

base::BlockFormat block_format_of(GgufType type) {
  return type == GgufType::q8_0   ? base::BlockFormat::q8_0
         : type == GgufType::q4_0 ? base::BlockFormat::q4_0
                                  : base::BlockFormat::none;
}

bool quantize(base::BlockFormat format, const float* values, std::byte* blocks, int64_t num_blocks) {
  ops::Quantizer quantizer(format, num_blocks * kBlock);
  try {
    quantizer.add(0, num_blocks * kBlock, values);
  } catch (const ShapeError&) {
    return false;
  }
  ops::write_gguf_blocks(quantizer.finish(), 0, num_blocks, blocks);
  return true;
}

}  // namespace trireme::formats
