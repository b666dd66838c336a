// What a checkpoint can suffer on a disk: flipped bytes, lost tails, lost files. Each is to be found, named, and
// answered with the next older complete checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "fixtures.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/checkpoint/load.h"
#include "trireme/checkpoint/verify.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// The error of reading everything: open, all tensors, all small files. Empty when nothing was noticed.
std::string read_everything(const fs::path& path, int64_t scale = 1) {
  try {
    const Checkpoint checkpoint = open_checkpoint(path);
    for (const auto& [name, file] : checkpoint.manifest.files) {
      if (!name.ends_with(".safetensors")) read_text(checkpoint, name);
    }
    count_wrong_elements(path, 2, scale);
    return "";
  } catch (const CheckpointError& error) {
    return error.what();
  }
}

void flip(const fs::path& file, int64_t position, int bit) {
  std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
  stream.seekg(position);
  const char byte = static_cast<char>(stream.get() ^ (1 << bit));
  stream.seekp(position);
  stream.put(byte);
}

TEST(Damage, EveryFlippedByteIsFound) {
  const ScratchFolder out;
  const fs::path path = save_sample(out.path(), 2, 2, 100);  // 1.1 MiB of optimizer state: two blocks
  ASSERT_EQ(read_everything(path, 100), "");
  std::vector<std::pair<std::string, int64_t>> files;
  for (const auto& [name, bytes] : folder_contents(path)) files.emplace_back(name, static_cast<int64_t>(bytes.size()));
  std::mt19937_64 random(20240);
  const int flips = slow_tests() ? 20000 : 400;
  for (int i = 0; i < flips; ++i) {
    // Every file equally often, and the beginnings (headers) of files as often as the rest.
    const auto& [name, bytes] = files[random() % files.size()];
    const auto position =
        static_cast<int64_t>(random() % static_cast<uint64_t>(i % 2 ? bytes : std::min<int64_t>(bytes, 2000)));
    const int bit = static_cast<int>(random() % 8);
    flip(path / name, position, bit);
    EXPECT_THAT(read_everything(path, 100), HasSubstr("is damaged")) << name << " byte " << position << " bit " << bit;
    if (i % 10 == 0) {
      EXPECT_FALSE(verify(path).problems.empty()) << name << " byte " << position;
    }
    flip(path / name, position, bit);
  }
  EXPECT_EQ(read_everything(path, 100), "");
}

TEST(Damage, AFlippedByteOfATensorIsRefusedNamingFileAndTensor) {
  const ScratchFolder out;
  const fs::path path = save_sample(out.path(), 2, 2, 3000);
  const Checkpoint checkpoint = open_checkpoint(path);
  std::mt19937_64 random(6);
  const int flips = slow_tests() ? 100 : 10;
  for (int i = 0; i < flips; ++i) {
    auto place = checkpoint.tensors.begin();
    do {
      place = std::next(checkpoint.tensors.begin(), static_cast<int>(random() % checkpoint.tensors.size()));
    } while (place->second.elements == 0);
    const auto& [name, tensor] = *place;
    const fs::path file = checkpoint.files[static_cast<size_t>(tensor.file)]->path();
    const auto bytes = static_cast<uint64_t>(tensor.elements * size_of(tensor.dtype));
    const int64_t position = tensor.begin + static_cast<int64_t>(random() % bytes);
    const int bit = static_cast<int>(random() % 8);
    flip(file, position, bit);
    // Read whole, the block may be met with a neighbour first, which is named then.
    std::vector<double> values(static_cast<size_t>(tensor.elements));
    std::string error = "no error";
    try {
      const Checkpoint damaged = open_checkpoint(path);
      const PieceRequest request{
          .tensor = name, .begin = 0, .end = tensor.elements, .data = values.data(), .dtype = Dtype::f64};
      read_pieces(damaged, {&request, 1});
    } catch (const CheckpointError& caught) {
      error = caught.what();
    }
    EXPECT_THAT(error, HasSubstr(file.filename().string() + ", block " + std::to_string(position / kBlockBytes)));
    EXPECT_THAT(error, HasSubstr("'" + name + "'"));
    EXPECT_THAT(read_everything(path, 3000), HasSubstr(file.filename().string()));
    flip(file, position, bit);
  }
}

TEST(Damage, ASampleOfTruncationsIsFound) {
  const ScratchFolder out;
  const fs::path path = save_sample(out.path(), 2, 1);
  std::mt19937_64 random(7);
  for (const auto& [name, bytes] : folder_contents(path)) {
    std::vector<size_t> lengths = {0, 1, 7, 8, 9, bytes.size() - 1};
    for (int i = 0; i < (slow_tests() ? 300 : 20); ++i) lengths.push_back(random() % bytes.size());
    for (const size_t length : lengths) {
      if (length >= bytes.size()) continue;
      overwrite(path / name, bytes.substr(0, length));
      const std::string error = read_everything(path);
      EXPECT_THAT(error, HasSubstr("is damaged")) << name << " cut to " << length;
      EXPECT_THAT(error, HasSubstr(name));
    }
    overwrite(path / name, bytes + "x");
    EXPECT_THAT(read_everything(path), HasSubstr("is damaged")) << name << " with a byte more";
    overwrite(path / name, bytes);
  }
  EXPECT_EQ(read_everything(path), "");
}

TEST(Damage, EveryMissingFileIsNamed) {
  const ScratchFolder out;
  const fs::path path = save_sample(out.path(), 2, 1);
  for (const auto& [name, bytes] : folder_contents(path)) {
    fs::remove(path / name);
    const std::string error = read_everything(path);
    EXPECT_THAT(error, HasSubstr(name + " is missing"));
    overwrite(path / name, bytes);
  }
}

TEST(Damage, TheMessageNamesFileBlockBytesTensorAndTheWayOut) {
  const ScratchFolder out;
  const fs::path older = save_sample(out.path(), 1, 1, 1500);
  const fs::path newer = save_sample(out.path(), 2, 1, 1500);
  flip(newer / "model.safetensors", kBlockBytes + 5, 0);
  const std::string expected =
      "the checkpoint " + newer.string() +
      " is damaged: model.safetensors, block 1 (bytes 1048576 to 2097152) does not match its "
      "checksum (found reading tensor 'model.embed_tokens.weight'); the next older good one is " +
      older.string();
  EXPECT_EQ(read_everything(newer, 1500), expected);

  overwrite(older / "config.json", "");  // not good any more
  EXPECT_THAT(read_everything(newer, 1500), HasSubstr("; no older good one lies beside it"));
  const VerifyReport report = verify(newer);
  EXPECT_THAT(report.problems,
              testing::ElementsAre(
                  "model.safetensors, block 1 (bytes 1048576 to 2097152) does not match its checksum (it holds "
                  "tensor 'model.embed_tokens.weight')"));
}

TEST(Damage, ABlockNobodyReadsDoesNotStopThoseWhoReadOthers) {
  const ScratchFolder out;
  const fs::path path = save_sample(out.path(), 2, 1, 1500);
  flip(path / "model.safetensors", kBlockBytes + 5, 0);
  const Checkpoint checkpoint = open_checkpoint(path);
  std::vector<float> values(1000);
  const auto read = [&](int64_t begin) {
    const PieceRequest request{.tensor = "model.embed_tokens.weight",
                               .begin = begin,
                               .end = begin + 1000,
                               .data = values.data(),
                               .dtype = Dtype::f32};
    read_pieces(checkpoint, {&request, 1});
  };
  EXPECT_NO_THROW(read(0));
  EXPECT_THROW(read(700'000), CheckpointError);
}

TEST(Damage, FindLatestPassesOverFoldersWithoutASoundManifest) {
  const ScratchFolder out;
  EXPECT_EQ(find_latest(out / "nowhere"), std::nullopt);
  EXPECT_EQ(find_latest(out.path()), std::nullopt);
  const fs::path one = save_sample(out.path(), 9, 1);
  const fs::path two = save_sample(out.path(), 10, 1);
  const fs::path huge = save_sample(out.path(), 123'456'789, 1);
  fs::create_directories(out / "step-0000abcd");
  fs::create_directories(out / "step-99999999999999999999999");
  EXPECT_EQ(find_latest(out.path()), huge);
  fs::remove(huge / "manifest.json");
  EXPECT_EQ(find_latest(out.path()), two);
  flip(two / "manifest.json", 40, 3);
  EXPECT_EQ(find_latest(out.path()), one);
}

TEST(Damage, AManifestOfAnotherVersionIsRefused) {
  Manifest manifest{.step = 4, .files = {{"a", describe("abc")}}};
  const std::string text = manifest_to_json(manifest);
  EXPECT_EQ(parse_manifest(text, "m").files.at("a").blocks, describe("abc").blocks);
  std::string other = text;
  other.replace(other.find("\"version\": 1"), 12, "\"version\": 2");
  EXPECT_THROW(parse_manifest(other, "m"), CheckpointError);
  EXPECT_THROW(parse_manifest("{}", "m"), CheckpointError);
  manifest.files = {{"../a", describe("abc")}};
  EXPECT_THROW(parse_manifest(manifest_to_json(manifest), "m"), CheckpointError);
  static_assert(num_blocks(INT64_MAX) == INT64_MAX / kBlockBytes + 1);
  manifest.files = {{"a", {.bytes = INT64_MAX, .blocks = {}}}};
  EXPECT_THROW(parse_manifest(manifest_to_json(manifest), "m"), CheckpointError);
}

}  // namespace
}  // namespace trireme::checkpoint
