#include "trireme/formats/torch/pickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/fixtures.h"

namespace trireme::formats {
namespace {

using testing::HasSubstr;

Pickle read_pickle(const std::string& bytes) {
  checkpoint::ReadBudget budget(static_cast<int64_t>(bytes.size()), "x.pkl");
  return Pickle(bytes, budget);
}

std::string pickle_error(const std::string& bytes) {
  return checkpoint::error_of([&] { read_pickle(bytes); });
}

std::string bytes(std::initializer_list<int> values) {
  std::string result = "\x80\x02";
  for (const int value : values) result += static_cast<char>(value);
  return result;
}

TEST(Pickle, reads_what_its_writer_writes) {
  PickleWriter writer;
  writer.empty_dict().mark().text("step").integer(-7).text("far").integer(int64_t{1} << 40);
  writer.text("size").global("torch", "Size").mark().integers(std::vector<int64_t>{3, 4}).tuple().call();
  writer.text("yes").boolean(true).text("none").none().set_items();
  const Pickle pickle = read_pickle(writer.finish());
  const auto at = [&](std::string_view key) { return pickle.find(pickle.root(), key); };
  EXPECT_EQ(pickle.integer(at("step")), -7);
  EXPECT_EQ(pickle.integer(at("far")), int64_t{1} << 40);
  EXPECT_EQ(pickle.integers(at("size")), (std::vector<int64_t>{3, 4}));
  EXPECT_TRUE(std::get<bool>(pickle.at(at("yes"))));
  EXPECT_EQ(at("none"), 0u);
  EXPECT_EQ(at("absent"), 0u);
}

TEST(Pickle, calls_stay_data_and_keep_their_state) {
  PickleWriter writer;
  writer.global("torch.distributed.checkpoint.metadata", "MetadataIndex").empty_tuple().create();
  writer.empty_dict().mark().text("fqn").text("a.b").set_items().build();
  const Pickle pickle = read_pickle(writer.finish());
  EXPECT_TRUE(pickle.call(pickle.root(), "torch.distributed.checkpoint.metadata", "MetadataIndex"));
  EXPECT_FALSE(pickle.call(pickle.root(), "torch.distributed.checkpoint.metadata", "Metadata"));
  EXPECT_EQ(pickle.text(pickle.find(pickle.state_of(pickle.root()), "fqn")), "a.b");
}

TEST(Pickle, refuses_names_that_no_checkpoint_needs) {
  EXPECT_THAT(pickle_error("\x80\x02"
                           "cos\nsystem\n."),
              HasSubstr("it asks for os.system"));
  EXPECT_THAT(pickle_error("\x80\x04\x8c\x08"
                           "builtins\x8c\x04"
                           "eval\x93."),
              HasSubstr("builtins.eval"));
  EXPECT_THAT(pickle_error("\x80\x02"
                           "ctorch._utils\n_rebuild_tensor_v9\n."),
              HasSubstr("torch._utils._rebuild_tensor_v9"));
}

TEST(Pickle, refuses_pickles_that_break_their_own_rules) {
  EXPECT_THAT(pickle_error(""), HasSubstr("it is cut off"));
  EXPECT_THAT(pickle_error("(dp0\n."), HasSubstr("does not begin with a protocol"));
  EXPECT_THAT(pickle_error("\x80\x09."), HasSubstr("its protocol is 9"));
  EXPECT_THAT(pickle_error(bytes({'N'})), HasSubstr("it is cut off"));
  EXPECT_THAT(pickle_error(bytes({'.'})), HasSubstr("empty stack"));
  EXPECT_THAT(pickle_error(bytes({'(', '.'})), HasSubstr("empty stack"));
  EXPECT_THAT(pickle_error(bytes({'t', '.'})), HasSubstr("did not begin"));
  EXPECT_THAT(pickle_error(bytes({'h', 3, '.'})), HasSubstr("recalls value 3"));
  EXPECT_THAT(pickle_error(bytes({'N', 'q', 9, '.'})), HasSubstr("keeps value 9"));
  EXPECT_THAT(pickle_error(bytes({'X', 255, 255, 255, 255, 'a'})), HasSubstr("it is cut off"));
  EXPECT_THAT(pickle_error(bytes({'N', 'N', 'R', '.'})), HasSubstr("calls what is no name"));
  EXPECT_THAT(pickle_error(bytes({'}', '(', 'N', 'u', '.'})), HasSubstr("key without a value"));
  EXPECT_THAT(pickle_error(bytes({'I', '1', '\n', '.'})), HasSubstr("opcode 0x49"));
}

TEST(Pickle, refuses_to_take_far_more_memory_than_its_size) {
  // 4 MB of empty lists would be 130 MB of values.
  std::string flood = "\x80\x02";
  flood.append(4 << 20, ']').append(".");
  EXPECT_THAT(pickle_error(flood), HasSubstr("more memory than its own size"));
  // A list that is given to itself again and again.
  std::string doubling = "\x80\x02]q" + std::string(1, '\0');
  for (int i = 0; i < 64; ++i) doubling += "2";
  EXPECT_EQ(pickle_error(doubling + "."), "no error");
}

TEST(Pickle, deep_nesting_and_cycles_are_only_values) {
  std::string deep = "\x80\x02";
  deep.append(1 << 18, ']').append((1 << 18) - 1, 'a').append(".");
  EXPECT_EQ(read_pickle(deep).size(), (1u << 18) + 1);
  const Pickle cycle = read_pickle(std::string("\x80\x02]q\0h\0a.", 9));
  EXPECT_EQ(cycle.items(cycle.root()).front(), cycle.root());
}

}  // namespace
}  // namespace trireme::formats
