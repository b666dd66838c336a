#include "trireme/formats/gguf/blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "trireme/base/error.h"

namespace trireme::formats {
namespace {

constexpr int64_t kBlock = 32;
constexpr std::array<GgufTypeInfo, 6> kTypes{{{GgufType::f32, "F32", 1, 4, Dtype::f32},
                                              {GgufType::f16, "F16", 1, 2, Dtype::f16},
                                              {GgufType::bf16, "BF16", 1, 2, Dtype::bf16},
                                              {GgufType::q4_0, "Q4_0", kBlock, 18, Dtype::f32},
                                              {GgufType::q4_1, "Q4_1", kBlock, 20, Dtype::f32},
                                              {GgufType::q8_0, "Q8_0", kBlock, 34, Dtype::f32}}};

struct Unread {
  uint32_t number;
  std::string_view name;
};
constexpr Unread kUnread[] = {
    {6, "Q5_0"},   {7, "Q5_1"},   {9, "Q8_1"},     {10, "Q2_K"},   {11, "Q3_K"},    {12, "Q4_K"},  {13, "Q5_K"},
    {14, "Q6_K"},  {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"},
    {21, "IQ3_S"}, {22, "IQ2_S"}, {23, "IQ4_XS"},  {24, "I8"},     {25, "I16"},     {26, "I32"},   {27, "I64"},
    {28, "F64"},   {29, "IQ1_M"}, {34, "TQ1_0"},   {35, "TQ2_0"},  {39, "MXFP4"},   {40, "NVFP4"}, {41, "Q1_0"}};

float read_half(const std::byte* bytes) {
  float value;
  checkpoint::convert(bytes, Dtype::f16, &value, Dtype::f32, 1);
  return value;
}

int nibble(const std::byte* quants, int64_t i) {  // low nibbles are elements 0..15, high ones 16..31
  const int byte = std::to_integer<int>(quants[i % 16]);
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

void read_q8_0(const std::byte* block, float* values) {
  const float scale = read_half(block);
  for (int64_t i = 0; i < kBlock; ++i)
    values[i] = static_cast<float>(static_cast<int8_t>(std::to_integer<uint8_t>(block[2 + i]))) * scale;
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
  const auto read = type == GgufType::q4_0 ? read_q4_0 : type == GgufType::q4_1 ? read_q4_1 : read_q8_0;
  check_invariant(info(type).block_elements == kBlock, "only blocks of 32 values are dequantised");
  for (int64_t i = 0; i < num_blocks; ++i) read(blocks + i * info(type).block_bytes, values + i * kBlock);
}

bool quantize_q8_0(const float* values, std::byte* blocks, int64_t num_blocks) {
  constexpr float kLargest = 65504.0f * 127.0f;
  for (int64_t b = 0; b < num_blocks; ++b, values += kBlock, blocks += 34) {
    float largest = 0;
    for (int64_t i = 0; i < kBlock; ++i) {
      if (!(std::abs(values[i]) <= kLargest)) return false;  // NaN fails as well
      largest = std::max(largest, std::abs(values[i]));
    }
    const float scale = largest / 127.0f;
    const float inverse = scale == 0 || !std::isfinite(1.0f / scale) ? 0.0f : 1.0f / scale;
    checkpoint::convert(&scale, Dtype::f32, blocks, Dtype::f16, 1);
    for (int64_t i = 0; i < kBlock; ++i) {
      // Rounds halves away from zero, as quants.py's np_roundf.
      const float scaled = values[i] * inverse;
      const float floored = std::floor(std::abs(scaled));
      const float rounded = floored + std::floor(2 * (std::abs(scaled) - floored));
      blocks[2 + i] = static_cast<std::byte>(static_cast<int8_t>(scaled < 0 ? -rounded : rounded));
    }
  }
  return true;
}

}  // namespace trireme::formats
