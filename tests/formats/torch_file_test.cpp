#include "trireme/formats/torch/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/fixtures.h"
#include "tests/checkpoint/memory_source.h"
#include "trireme/formats/dcp/dcp.h"

namespace trireme::formats {
namespace {

using testing::HasSubstr;

checkpoint::MemorySource odd_tensors() {
  checkpoint::MemorySource source;
  source.add_counted("a.weight", {5, 3});
  source.add_counted("a.bias", {});
  source.add_counted("empty", {0, 4});
  return source;
}

void copy(const checkpoint::MemorySource& source, checkpoint::TensorSink& sink) {
  for (size_t i = 0; i < source.tensors().size(); ++i) {
    sink.write(i, 0, checkpoint::num_elements(source.tensors()[i].shape), source.bytes(i).data(),
               source.tensors()[i].dtype);
  }
  sink.finish();
}

void expect_same(const checkpoint::TensorSource& got, const checkpoint::MemorySource& expected) {
  ASSERT_EQ(got.tensors().size(), expected.tensors().size());
  for (size_t i = 0; i < expected.tensors().size(); ++i) {
    EXPECT_EQ(got.tensors()[i].name, expected.tensors()[i].name);
    EXPECT_EQ(got.tensors()[i].shape, expected.tensors()[i].shape);
    for (const int64_t piece : {1, 4, 100})
      EXPECT_EQ(checkpoint::read_whole(got, i, piece), expected.bytes(i)) << piece;
  }
}

TEST(TorchFile, comes_back_as_it_was_written) {
  const checkpoint::ScratchFolder folder;
  TorchFileSink sink(folder / "x.pth", odd_tensors().tensors());
  copy(odd_tensors(), sink);
  expect_same(TorchFileSource(folder / "x.pth"), odd_tensors());
}

TEST(TorchFile, a_model_in_one_file_beside_an_index_of_others_is_refused) {
  const checkpoint::ScratchFolder folder;
  for (const char* name : {"pytorch_model.bin", "pytorch_model-00001-of-00001.bin"}) {
    TorchFileSink sink(folder / name, odd_tensors().tensors());
    copy(odd_tensors(), sink);
  }
  const auto index = folder / "pytorch_model.bin.index.json";
  checkpoint::overwrite(index, R"({"weight_map": {"a.weight": "pytorch_model-00001-of-00001.bin"}})");
  EXPECT_THAT(checkpoint::error_of([&] { TorchFileSource{folder.path()}; }),
              HasSubstr("holds pytorch_model.bin and an index of other files (pytorch_model.bin.index.json): "
                        "transformers reads pytorch_model.bin; move one of them away"));
  checkpoint::overwrite(index, R"({"weight_map": {"a.weight": "pytorch_model.bin"}})");
  EXPECT_EQ(TorchFileSource(folder.path()).tensors().size(), 1u);
  std::filesystem::remove(index);
  EXPECT_EQ(TorchFileSource(folder.path()).tensors().size(), 3u);
}

TEST(TorchFile, every_cut_and_every_changed_byte_is_an_error_or_leaves_sound_tensors) {
  const checkpoint::ScratchFolder folder;
  TorchFileSink sink(folder / "x.pth", odd_tensors().tensors());
  copy(odd_tensors(), sink);
  const std::string whole = checkpoint::folder_contents(folder.path())["x.pth"];
  int refused = 0;
  const auto try_bytes = [&](const std::string& bytes) {
    checkpoint::overwrite(folder / "y.pth", bytes);
    try {
      const TorchFileSource source(folder / "y.pth");
      for (size_t i = 0; i < source.tensors().size(); ++i) checkpoint::read_whole(source, i);
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.what(), HasSubstr("y.pth"));
      ++refused;
    }
  };
  for (size_t cut = 0; cut < whole.size(); cut += 7) try_bytes(whole.substr(0, cut));
  EXPECT_EQ(refused, static_cast<int>((whole.size() + 6) / 7));
  for (size_t i = 0; i < whole.size(); i += 3) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 0x41);
    try_bytes(changed);
  }
}

TEST(TorchFile, archives_and_tensors_beyond_4_gib_have_64_bit_places) {
  ZipLayout layout;
  layout.add("archive/a", int64_t{5} << 30);
  layout.add("archive/b", 10);
  const std::string header = layout.header(0, 1), second = layout.header(1, 2),
                    end = layout.directory(std::vector<uint32_t>{1, 2});
  EXPECT_EQ(layout.directory_begin() + static_cast<int64_t>(end.size()), layout.bytes());
  const checkpoint::ReadBytes read = [&](int64_t offset, std::span<std::byte> target) {
    std::string bytes(target.size(), '\0');
    const auto paste = [&](int64_t at, const std::string& text) {
      for (int64_t i = std::max(offset, at);
           i < std::min<int64_t>(offset + static_cast<int64_t>(bytes.size()), at + static_cast<int64_t>(text.size()));
           ++i) {
        bytes[static_cast<size_t>(i - offset)] = text[static_cast<size_t>(i - at)];
      }
    };
    paste(0, header);
    paste(layout.records()[1].header, second);
    paste(layout.directory_begin(), end);
    std::memcpy(target.data(), bytes.data(), bytes.size());
  };
  const std::vector<ZipEntry> entries = read_zip_directory(layout.bytes(), read, "large.pth");
  ASSERT_EQ(entries.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(entries[i].begin, layout.records()[i].begin);
    EXPECT_EQ(entries[i].begin % 64, 0);
    EXPECT_EQ(entries[i].bytes, layout.records()[i].bytes);
  }
}

/// A dict of one tensor with the given view of storage 0, which holds four floats.
std::string archive(const std::vector<int64_t>& shape, const std::vector<int64_t>& stride, int64_t offset) {
  PickleWriter pickle;
  pickle.empty_dict().mark().text("w").global("torch._utils", "_rebuild_tensor_v2").mark().mark().text("storage");
  pickle.global("torch", "FloatStorage").text("0").text("cpu").integer(4).tuple().persistent().integer(offset);
  pickle.integers(shape).integers(stride).boolean(false).none().tuple().call().set_items();
  const std::string contents[] = {pickle.finish(), std::string(16, '\1')};
  ZipLayout layout;
  layout.add("a/data.pkl", static_cast<int64_t>(contents[0].size()));
  layout.add("a/data/0", 16);
  std::string bytes(static_cast<size_t>(layout.bytes()), '\0');
  for (size_t i = 0; i < 2; ++i) {
    const std::string header = layout.header(i, 0);
    bytes.replace(static_cast<size_t>(layout.records()[i].header), header.size(), header);
    bytes.replace(static_cast<size_t>(layout.records()[i].begin), contents[i].size(), contents[i]);
  }
  const std::string end = layout.directory(std::vector<uint32_t>{0, 0});
  return bytes.replace(static_cast<size_t>(layout.directory_begin()), end.size(), end);
}

TEST(TorchFile, a_view_that_leaves_its_storage_is_refused) {
  const checkpoint::ScratchFolder folder;
  const auto error = [&](const std::vector<int64_t>& shape, const std::vector<int64_t>& stride, int64_t offset) {
    checkpoint::overwrite(folder / "x.pth", archive(shape, stride, offset));
    return checkpoint::error_of([&] { TorchFileSource source(folder / "x.pth"); });
  };
  EXPECT_EQ(error({2, 2}, {2, 1}, 0), "no error");
  EXPECT_EQ(error({2}, {3}, 0), "no error");
  EXPECT_THAT(error({2, 2}, {2, 1}, 1), HasSubstr("'w' [2, 2] reaches beyond the 4 elements"));
  EXPECT_THAT(error({2}, {4}, 0), HasSubstr("reaches beyond"));
  EXPECT_THAT(error({2}, {-1}, 1), HasSubstr("reaches beyond"));
  EXPECT_THAT(error({3}, {int64_t{1} << 62}, 0), HasSubstr("reaches beyond"));
  EXPECT_THAT(error({int64_t{1} << 40}, {0}, 0), HasSubstr("repeats 4 stored values"));
  EXPECT_THAT(error({-1}, {1}, 0), HasSubstr("negative size"));
  EXPECT_THAT(error({2, 2}, {1}, 0), HasSubstr("no sound shape and strides"));
}

TEST(TorchFile, two_tensors_of_one_name_are_not_written) {
  const checkpoint::ScratchFolder folder;
  const std::vector<checkpoint::TensorSpec> twice(2, checkpoint::TensorSpec{.name = "a", .shape = {2}});
  EXPECT_THAT(checkpoint::error_of([&] { TorchFileSink(folder / "x.pth", twice); }),
              HasSubstr("two tensors called 'a'"));
  EXPECT_THAT(checkpoint::error_of([&] { DcpSink(folder.path(), twice); }), HasSubstr("two tensors called 'a'"));
  EXPECT_TRUE(checkpoint::folder_contents(folder.path()).empty());
}

TEST(Dcp, comes_back_as_it_was_written) {
  const checkpoint::ScratchFolder folder;
  DcpSink sink(folder.path(), odd_tensors().tensors());
  copy(odd_tensors(), sink);
  expect_same(DcpSource(folder.path()), odd_tensors());
}

/// Metadata of tensor "w" of `shape`, cut into boxes (offsets, sizes).
std::string metadata(const std::vector<int64_t>& shape,
                     const std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>>& boxes, int64_t begin = 0,
                     int64_t bytes = 12) {
  constexpr const char* kModule = "torch.distributed.checkpoint.metadata";
  PickleWriter pickle;
  const auto object = [&](const char* module, const char* name) {
    pickle.global(module, name).empty_tuple().create().empty_dict().mark();
  };
  object(kModule, "Metadata");
  pickle.text("state_dict_metadata").empty_dict().mark().text("w");
  object(kModule, "TensorStorageMetadata");
  pickle.text("properties").global(kModule, "TensorProperties").empty_tuple().create();
  pickle.mark().global("torch", "float32").tuple().build().text("size").integers(shape).text("chunks").empty_list();
  for (const auto& [offsets, sizes] : boxes) {
    object(kModule, "ChunkStorageMetadata");
    pickle.text("offsets").integers(offsets).text("sizes").integers(sizes).set_items().build().append();
  }
  pickle.set_items().build().set_items().text("storage_data").empty_dict().mark();
  for (const auto& [offsets, sizes] : boxes) {
    object(kModule, "MetadataIndex");
    pickle.text("fqn").text("w").text("offset").integers(offsets).set_items().build();
    object("torch.distributed.checkpoint.filesystem", "_StorageInfo");
    pickle.text("relative_path").text("f").text("offset").integer(begin).text("length").integer(bytes);
    pickle.set_items().build();
  }
  return pickle.set_items().set_items().build().finish();
}

TEST(Dcp, chunks_have_to_fill_their_tensor_exactly) {
  const auto error = [](const std::string& bytes) {
    return checkpoint::error_of([&] {
      checkpoint::ReadBudget budget(static_cast<int64_t>(bytes.size()), ".metadata");
      parse_dcp_metadata(bytes, budget);
    });
  };
  EXPECT_EQ(error(metadata({4, 3}, {{{0, 0}, {1, 3}}, {{1, 0}, {3, 3}}})), "no error");
  EXPECT_EQ(error(metadata({4, 3}, {{{0, 0}, {4, 1}}, {{0, 1}, {4, 2}}})), "no error");
  EXPECT_EQ(error(metadata({}, {{{}, {}}})), "no error");
  EXPECT_THAT(error(metadata({4, 3}, {{{0, 0}, {1, 3}}})), HasSubstr("'w' [4, 3] has chunks of 3 elements in all"));
  EXPECT_THAT(error(metadata({4}, {{{0}, {2}}, {{1}, {2}}})), HasSubstr("has chunks that overlap"));
  EXPECT_THAT(error(metadata({2, 2}, {{{0, 0}, {2, 1}}, {{1, 0}, {1, 2}}})), HasSubstr("has chunks that overlap"));
  EXPECT_THAT(error(metadata({4}, {{{3}, {2}}})), HasSubstr("has a chunk [2] at [3]"));
  EXPECT_THAT(error(metadata({4}, {{{0, 0}, {2, 2}}})), HasSubstr("has a chunk"));
  EXPECT_THAT(error(metadata({13}, {{{0}, {13}}})), HasSubstr("'w' [13] has a chunk of 13 elements in 12 bytes"));
  EXPECT_EQ(error(metadata({4}, {{{0}, {4}}}, INT64_MAX - 9, 9)), "no error");
  EXPECT_THAT(error(metadata({4}, {{{0}, {4}}}, INT64_MAX - 8, 9)), HasSubstr("'w' has no sound place in f"));
}

}  // namespace
}  // namespace trireme::formats
