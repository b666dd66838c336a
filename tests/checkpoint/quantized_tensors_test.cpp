// Matrices in few bits in a folder: read as their values; broken statistics are refused in one sentence.
#include "trireme/checkpoint/quantized_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <span>

#include "fixtures.h"
#include "trireme/checkpoint/bitsandbytes.h"
#include "trireme/ops/blocks/codes.h"
#include "trireme/ops/blocks/gguf.h"

namespace trireme::checkpoint {
namespace {

constexpr int64_t kRows = 70, kColumns = 66, kElements = kRows * kColumns;

/// The tensors of one matrix "m", by suffix.
using Contents = std::map<std::string, std::pair<TensorSpec, std::string>>;

template <class Values>
std::string bytes_of(const Values& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

ops::Quantized quantized(base::BlockFormat format) {
  std::vector<float> values(kElements);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i * i % 977)) * float(i % 91 + 1);
  ops::Quantizer quantizer(format, kElements);
  quantizer.add(0, kElements, values.data());
  return quantizer.finish();
}

Contents contents(const ops::Quantized& q) {
  const auto size = [](const auto& values) { return std::vector<int64_t>{std::ssize(values)}; };
  const std::string json = quant_state_json(q, {kRows, kColumns}, Dtype::f32);
  Contents c;
  c[""] = {{"m", {std::ssize(q.codes), 1}, Dtype::u8}, bytes_of(q.codes)};
  c[".quant_map"] = {{"m.quant_map", {16}, Dtype::f32}, bytes_of(ops::four_bit_code(q.format))};
  c[".quant_state"] = {{"m" + quant_state_suffix(q.format), size(json), Dtype::u8}, json};
  if (q.scales.empty()) {
    c[".absmax"] = {{"m.absmax", size(q.nested_codes), Dtype::u8}, bytes_of(q.nested_codes)};
    c[".nested_absmax"] = {{"m.nested_absmax", size(q.nested_scales), Dtype::f32}, bytes_of(q.nested_scales)};
    c[".nested_quant_map"] = {{"m.nested_quant_map", {256}, Dtype::f32}, bytes_of(ops::dynamic_code(true))};
  } else {
    c[".absmax"] = {{"m.absmax", size(q.scales), Dtype::f32}, bytes_of(q.scales)};
  }
  return c;
}

Checkpoint open(const ScratchFolder& folder, const Contents& contents) {
  std::vector<TensorSpec> specs;
  for (const auto& [suffix, tensor] : contents) specs.push_back(tensor.first);
  std::ofstream file(folder / "model.safetensors", std::ios::binary);
  file << write_header(specs, {});
  for (const auto& [suffix, tensor] : contents) file << tensor.second;
  file.close();
  return with_stored_blocks(open_checkpoint(folder.path()));
}

/// Also reads the matrix: what is wrong with statistics shows then.
std::string refusal(const Contents& contents) try {
  const ScratchFolder folder;
  const Checkpoint c = open(folder, contents);
  std::vector<float> values(kElements);
  read_piece(c, {"m", 0, kElements, values.data(), Dtype::f32});
  return "";
} catch (const CheckpointError& error) {
  return error.what();
}

TEST(QuantizedTensors, AreReadAsTheirValuesInAnyPieces) {
  for (const base::BlockFormatTraits& row : base::kBlockFormats) {
    if (row.method != "bitsandbytes") continue;
    const ops::Quantized q = quantized(row.format);
    std::vector<float> wanted(kElements), values(kElements);
    ops::dequantize(q, 0, kElements, wanted.data());
    const ScratchFolder folder;
    const Checkpoint c = open(folder, contents(q));
    EXPECT_EQ(c.tensors.size(), 1u);
    EXPECT_EQ(c.tensor("m").shape, (std::vector<int64_t>{kRows, kColumns}));
    for (const int64_t step : {kElements, int64_t{129}, int64_t{1}}) {
      std::ranges::fill(values, 0.0f);
      std::vector<PieceRequest> requests;
      for (int64_t at = 0; at < kElements; at += step)
        requests.push_back({"m", at, std::min(kElements, at + step), values.data() + at, Dtype::f32});
      read_pieces(c, requests);
      EXPECT_EQ(values, wanted) << row.name << " in pieces of " << step;
    }
    EXPECT_EQ(c.quantized->whole("m")->codes, q.codes);
  }
}

/// A folder with one matrix [70, 64] of random blocks of GGUF, and a vector beside it.
void write_gguf_folder(const ScratchFolder& folder, const std::string& bytes, int64_t row_bytes,
                       const std::string& quant_type) {
  const std::vector<TensorSpec> specs = {{"m", {kRows, row_bytes}, Dtype::u8}, {"v", {3}, Dtype::u8}};
  std::ofstream(folder / "model.safetensors", std::ios::binary) << write_header(specs, {}) << bytes << "abc";
  std::ofstream(folder / "config.json") << R"({"quantization_config": {"quant_method": "gguf", "quant_type": ")"
                                        << quant_type << "\"}}";
}

std::string random_gguf_blocks(int64_t blocks, int64_t block_bytes) {
  std::string bytes(static_cast<size_t>(blocks * block_bytes), '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * i % 251);
  for (size_t i = 1; i < bytes.size(); i += static_cast<size_t>(block_bytes)) bytes[i] &= 0x3B;  // finite scales
  return bytes;
}

TEST(QuantizedTensors, OfGgufAreReadAsTheirValuesAndTakenBitForBit) {
  for (const base::BlockFormat format : {base::BlockFormat::q8_0, base::BlockFormat::q4_0}) {
    const int64_t block_bytes = ops::gguf_block_bytes(format), elements = kRows * 64;
    const std::string bytes = random_gguf_blocks(kRows * 2, block_bytes);
    const ScratchFolder folder;
    write_gguf_folder(folder, bytes, 2 * block_bytes, std::string(base::traits_of(format).name));
    const Checkpoint c = with_stored_blocks(open_checkpoint(folder.path()));
    EXPECT_EQ(c.tensor("m").shape, (std::vector<int64_t>{kRows, 64}));
    EXPECT_EQ(c.tensor("v").dtype, Dtype::u8);
    ASSERT_TRUE(c.quantized != nullptr && c.quantized->has("m") && !c.quantized->has("v") && c.quantized->is_stored());
    const std::shared_ptr<const ops::Quantized> whole = c.quantized->whole("m");
    std::string kept(bytes.size(), '\0');
    ops::write_gguf_blocks(*whole, 0, kRows * 2, reinterpret_cast<std::byte*>(kept.data()));
    EXPECT_EQ(kept, bytes);
    std::vector<float> wanted(static_cast<size_t>(elements)), values(wanted.size());
    ops::dequantize(*whole, 0, elements, wanted.data());
    for (const int64_t step : {elements, int64_t{129}, int64_t{1}}) {
      std::ranges::fill(values, 0.0f);
      for (int64_t at = 0; at < elements; at += step)
        read_piece(c, {"m", at, std::min(elements, at + step), values.data() + at, Dtype::f32});
      EXPECT_EQ(values, wanted) << "in pieces of " << step;
    }
  }
}

TEST(QuantizedTensors, OfGgufAreRefusedWhereTheyAreNoWholeBlocks) {
  const auto said = [](const std::string& bytes, int64_t row_bytes) -> std::string {
    const ScratchFolder folder;
    write_gguf_folder(folder, bytes, row_bytes, "q8_0");
    try {
      with_stored_blocks(open_checkpoint(folder.path())).quantized->whole("m");
    } catch (const CheckpointError& error) {
      return error.what();
    }
    return "";
  };
  std::string bytes = random_gguf_blocks(kRows, 34);
  EXPECT_EQ(said(bytes, 34), "");
  EXPECT_THAT(said(std::string(kRows * 35, 'x'), 35), testing::HasSubstr("'m' in q8_0 has rows of 35 bytes"));
  bytes[35] = 0x7C;
  EXPECT_THAT(said(bytes, 34), testing::HasSubstr("'m' in q8_0 is damaged: a scale is infinite"));
}

TEST(QuantizedTensors, AreRefusedWhereTheirStatisticsAreBroken) {
  const Contents good = contents(quantized(base::BlockFormat::nf4_nested));
  EXPECT_EQ(refusal(good), "");
  for (const char* lacking : {"", ".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map"}) {
    Contents broken = good;
    broken.erase(lacking);
    EXPECT_THAT(refusal(broken), testing::HasSubstr("m")) << lacking;
  }
  const auto with_state = [&](const std::string& json) {
    Contents broken = good;
    broken[".quant_state"] = {{"m" + quant_state_suffix(base::BlockFormat::nf4), {std::ssize(json)}, Dtype::u8}, json};
    return refusal(broken);
  };
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string json = good.at(".quant_state").second;
    json.replace(json.find(from), from.size(), to);
    return with_state(json);
  };
  for (const std::string& json : {std::string("{"), std::string("[]"), std::string("{}"), std::string(5000, ' ')})
    EXPECT_THAT(with_state(json), testing::HasSubstr("'m'")) << json.substr(0, 9);
  EXPECT_THAT(changed("\"blocksize\": 64", "\"blocksize\": 32"), testing::HasSubstr("other blocks"));
  EXPECT_THAT(changed("\"nf4\"", "\"af4\""), testing::HasSubstr("other blocks"));
  for (const char* shape : {"[70, 660]", "[70]", "[-70, 66]", "[4611686018427387904, 66]", "[\"a\", 66]", "70"})
    EXPECT_THAT(changed("[70, 66]", shape), testing::HasSubstr("'m'")) << shape;
  Contents other = good;
  other[".quant_map"].second = std::string(64, '\x3f');
  EXPECT_THAT(refusal(other), testing::HasSubstr("other values for its codes"));
  other = good;
  other[".absmax"] = {{"m.absmax", {3}, Dtype::u8}, "abc"};
  EXPECT_THAT(refusal(other), testing::HasSubstr("absmax"));
}

}  // namespace
}  // namespace trireme::checkpoint
