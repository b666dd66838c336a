#include "trireme/formats/tensor_map.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/checkpoint/memory_source.h"
#include "trireme/base/error.h"

namespace trireme::formats {
namespace {

std::vector<float> values_of(const checkpoint::TensorSource& source, size_t tensor, int64_t piece) {
  const std::string bytes = checkpoint::read_whole(source, tensor, piece);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

/// q [4, 3], k [2, 3] and a vector, numbered 0.., 1000.., 2000...
checkpoint::MemorySource q_k_norm() {
  checkpoint::MemorySource source;
  source.add_counted("q", {4, 3});
  source.add_counted("k", {2, 3});
  source.add_counted("norm", {5});
  return source;
}

TEST(TensorMap, fuses_cuts_and_pads_rows_whatever_the_size_of_the_reads) {
  const checkpoint::MemorySource source = q_k_norm();
  const MappedSource mapped(source, {{.target = {.name = "fused", .shape = {6, 3}},
                                      .pieces = {{"q", 2, 4}, {"k", 0, 2}, {"", 0, 1}, {"q", 0, 1}}}});
  const std::vector<float> expected{6, 7, 8, 9, 10, 11, 1000, 1001, 1002, 1003, 1004, 1005, 0, 0, 0, 0, 1, 2};
  for (const int64_t piece : {1, 2, 3, 4, 5, 7, 18}) EXPECT_EQ(values_of(mapped, 0, piece), expected) << piece;
}

TEST(TensorMap, halves_become_pairs_and_back) {
  checkpoint::MemorySource source;
  source.add_counted("q", {12, 2});  // two heads of six rows
  const MappedSource pairs(
      source, {{.target = {.name = "pairs", .shape = {12, 2}}, .pieces = {{"q", 0, 6, 2}, {"q", 6, 12, 2}}}});
  const std::vector<float> expected{0,  1,  6,  7,  2,  3,  8,  9,  4,  5,  10, 11,
                                    12, 13, 18, 19, 14, 15, 20, 21, 16, 17, 22, 23};
  for (const int64_t piece : {1, 3, 4, 5, 24}) EXPECT_EQ(values_of(pairs, 0, piece), expected) << piece;

  const MappedSource halves(
      pairs, {{.target = {.name = "q", .shape = {12, 2}}, .pieces = {{"pairs", 0, 6, 3}, {"pairs", 6, 12, 3}}}});
  EXPECT_EQ(checkpoint::read_whole(halves, 0), source.bytes(0));
}

TEST(TensorMap, transposes_and_adds) {
  const checkpoint::MemorySource source = q_k_norm();
  const MappedSource mapped(source,
                            {{.target = {.name = "t", .shape = {3, 4}}, .pieces = {{"q", 0, 4}}, .transpose = true},
                             {.target = {.name = "n", .shape = {5}}, .pieces = {{"norm", 0, 5}}, .add = 1}});
  const std::vector<float> expected{0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11};
  for (const int64_t piece : {1, 2, 3, 4, 5, 6, 9, 12}) EXPECT_EQ(values_of(mapped, 0, piece), expected) << piece;
  EXPECT_EQ(values_of(mapped, 1, 2), (std::vector<float>{2001, 2002, 2003, 2004, 2005}));
}

TEST(TensorMap, renaming_keeps_everything_else) {
  const checkpoint::MemorySource source = q_k_norm();
  const MappedSource mapped(source, {renamed(source.tensors()[2], "model.norm.weight")});
  EXPECT_EQ(mapped.tensors()[0].name, "model.norm.weight");
  EXPECT_EQ(mapped.tensors()[0].shape, (std::vector<int64_t>{5}));
  EXPECT_EQ(checkpoint::read_whole(mapped, 0), source.bytes(2));
}

void expect_refused(const MappedTensor& mapped, const std::string& text) {
  const checkpoint::MemorySource source = q_k_norm();
  try {
    const MappedSource made(source, {mapped});
    FAIL() << "no error with " << text;
  } catch (const CheckpointError& error) {
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
}

TEST(TensorMap, refuses_maps_that_do_not_fit_their_tensors) {
  const checkpoint::TensorSpec target{.name = "x", .shape = {4, 3}};
  expect_refused({.target = target, .pieces = {{"v", 0, 4}}}, "needs 'v', which is not there");
  expect_refused({.target = target, .pieces = {{"q", 1, 5}}}, "needs rows 1 to 5 of 'q', which has the shape [4, 3]");
  expect_refused({.target = target, .pieces = {{"norm", 0, 4}}}, "cannot be made of 'norm'");
  expect_refused({.target = target, .pieces = {{"q", 0, 3}}}, "is not filled by its 3 rows");
  expect_refused({.target = target, .pieces = {{"q", 0, 4, 3}}}, "in 3 lines");
  expect_refused({.target = target, .pieces = {{"q", 0, 4}}, .transpose = true}, "cannot be made of 'q'");
}

}  // namespace
}  // namespace trireme::formats
