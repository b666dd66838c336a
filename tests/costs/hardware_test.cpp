#include "trireme/costs/hardware.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <tuple>

#include "trireme/base/error.h"

namespace trireme::costs {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

std::string file_of(const std::string& text) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "hardware.yaml";
  std::ofstream(path) << text;
  return path.string();
}

TEST(Hardware, EveryFileOfTheProgramIsReadAndHasWhatPlansNeed) {
  EXPECT_GE(hardware_names().size(), 12u);
  for (const std::string& name : hardware_names()) {
    const Hardware h = read_hardware(name);
    EXPECT_GT(h.memory, 0) << name;
    EXPECT_GT(h.memory_rate, 0) << name;
    EXPECT_GT(h.inside.rate, 0) << name;
    EXPECT_GT(h.between.rate, 0) << name;
    EXPECT_GT(h.price, 0) << name;
    EXPECT_FALSE(h.price_date.empty()) << name;
    EXPECT_FALSE(h.shares_cores) << name;
  }
  EXPECT_EQ(read_hardware("H100").peak_flops(at::kBFloat16), 989.4e12);
  EXPECT_EQ(read_hardware("v100").peak_flops(at::kBFloat16), 15.7e12);  // it has no units for bf16
}

TEST(Hardware, ItsTextIsReadAsTheSameHardware) {
  Hardware h = read_hardware("a10");
  h.measured_operations = {{"product_nt", at::kBFloat16, 1, 2, 512, 1024, 256, 1.2e-5}};
  h.measured_collectives = {{"all_gather", 2, 1 << 20, 2.1e-4}};
  h.disk_rate = 1.25, h.disk_read_rate = 2.5, h.disk_write_rate = 0.75, h.disk_work = 0.125;
  const Hardware again = read_hardware(file_of(hardware_yaml(h)));
  EXPECT_EQ(hardware_yaml(again).substr(0, 200), hardware_yaml(h).substr(0, 200));
  ASSERT_EQ(again.measured_operations.size(), 1u);
  EXPECT_EQ(again.measured_operations[0].threads, 2);
  EXPECT_EQ(again.measured_operations[0].seconds, 1.2e-5);
  ASSERT_EQ(again.measured_collectives.size(), 1u);
  EXPECT_EQ(again.measured_collectives[0].bytes, 1 << 20);
  EXPECT_EQ(std::tuple(again.disk_rate, again.disk_read_rate, again.disk_write_rate, again.disk_work),
            std::tuple(1.25, 2.5, 0.75, 0.125));
}

TEST(Hardware, MistakesInAFileAreToldInOneSentence) {
  EXPECT_THAT(refusal([] { read_hardware("h101"); }), HasSubstr("the hardware h101 is not known (did you mean h100?)"));
  EXPECT_THAT(refusal([] { read_hardware(file_of("name: x\nmemory: 80GB\n")); }), HasSubstr("memory wants a number"));
  EXPECT_THAT(refusal([] { read_hardware(file_of("name: x\nmemory_rte: 80\n")); }),
              HasSubstr("no key memory_rte (did you mean memory_rate?)"));
  EXPECT_THAT(refusal([] { read_hardware(file_of("name: x\nmemory_rate: -1\n")); }),
              HasSubstr("memory_rate must be at least 0"));
  EXPECT_THAT(refusal([] { read_hardware(file_of("name: x\nmemory: 80e9\n")); }),
              HasSubstr("memory must be at least 0 and at most 1,000,000"));
  EXPECT_THAT(refusal([] { read_hardware(file_of("name: x\npeak: {fp32: 1}\n")); }),
              HasSubstr(file_of("") + ": a hardware file needs memory_rate"));
  EXPECT_THAT(refusal([] {
                read_hardware(
                    file_of("name: x\npeak: {fp32: 1}\nmemory_rate: 1\nmeasured: {operations: [\"product fp32\"]}\n"));
              }),
              HasSubstr("measured.operations has the row 'product fp32'"));
  EXPECT_THAT(refusal([] { read_hardware("nowhere.yaml"); }),
              AllOf(HasSubstr("nowhere.yaml"), HasSubstr("hardware is a name (a10, "), Not(HasSubstr("--config"))));
  for (const char* reserved : {"80", "81"})
    EXPECT_THAT(
        refusal([&] {
          read_hardware(file_of(std::string("name: x\npeak: {fp32: 1}\nmemory_rate: 1\nmemory: 80\nreserved: ") +
                                reserved + "\n"));
        }),
        HasSubstr("leaves nothing of a device's memory of 80 GB"));
}

// A rate is divided by them.
TEST(Hardware, MeasuredRowsOfNothingAreRefused) {
  const std::string text = "name: x\npeak: {fp32: 1}\nmemory_rate: 1\nmeasured:\n  ";
  const auto refusal_of = [&](const std::string& rows) {
    return refusal([&] { read_hardware(file_of(text + rows)); });
  };
  EXPECT_EQ(refusal_of("collectives:\n    - move 1 4096 1e-5\n"), "");
  EXPECT_THAT(refusal_of("collectives:\n    - move 1 0 1e-5\n"),
              HasSubstr("measured.collectives has the row 'move 1 0"));
  EXPECT_THAT(refusal_of("collectives:\n    - send 0 8 1e-5\n"), HasSubstr("measured.collectives has the row 'send 0"));
  EXPECT_THAT(refusal_of("operations:\n    - norm fp32 0x1 8 8 1 1e-5\n"),
              HasSubstr("measured.operations has the row"));
}

TEST(Hardware, ClustersAreMachinesTimesDevices) {
  const auto sizes = [](const std::string& text) {
    const Cluster c = parse_cluster(text);
    return std::pair(c.machines, c.devices);
  };
  EXPECT_EQ(sizes("h100"), std::pair(int64_t{1}, int64_t{1}));
  EXPECT_EQ(sizes("2xH100"), std::pair(int64_t{1}, int64_t{2}));
  EXPECT_EQ(sizes("16xH100"), std::pair(int64_t{2}, int64_t{8}));
  EXPECT_EQ(sizes("4x2xA10"), std::pair(int64_t{4}, int64_t{2}));
  EXPECT_EQ(sizes("2xrtx-4090"), std::pair(int64_t{1}, int64_t{2}));
  const std::string cores = file_of("name: x\npeak: {fp32: 1}\nmemory_rate: 1\ndevices: 2\nshares_cores: true\n");
  EXPECT_EQ(sizes("4x" + cores), std::pair(int64_t{1}, int64_t{4}));  // ranks share a machine's cores
  EXPECT_THAT(refusal([] { parse_cluster("0x8xH100"); }), HasSubstr("a count of 0"));
  EXPECT_EQ(sizes("2X4XA10"), std::pair(int64_t{2}, int64_t{4}));
  EXPECT_THAT(refusal([] { parse_cluster("12xH100"); }),
              HasSubstr("do not fill machines of 8; say machines x devices x "
                        "name, such as 2x6xH100"));
  EXPECT_THAT(refusal([] { parse_cluster("13xH100"); }), HasSubstr("such as 13x1xH100"));
}

TEST(Hardware, ClustersThatNameNoHardwareAreToldHow) {
  EXPECT_THAT(refusal([] { parse_cluster("8x"); }), HasSubstr("'8x' names no hardware; say for instance 8xH100"));
  EXPECT_THAT(refusal([] { parse_cluster("8"); }), HasSubstr("'8' names no hardware; say for instance 8xH100"));
  EXPECT_THAT(refusal([] { parse_cluster("2x8"); }), HasSubstr("say for instance 2x8xH100"));
  EXPECT_THAT(refusal([] { parse_cluster("8x8x8xH100"); }), HasSubstr("more than two counts"));
  EXPECT_THAT(refusal([] { parse_cluster("4xH100,4xA100-80"); }),
              HasSubstr("all devices of a cluster are of one kind"));
  EXPECT_THAT(refusal([] { parse_cluster("8xA100"); }), HasSubstr("(did you mean a100-40 or a100-80?)"));
  EXPECT_THAT(refusal([] { parse_cluster("2000000xH100"); }), HasSubstr("from 1 to 1,000,000"));
}

// A format that a card lacks is computed in a wider one, or not at all.
TEST(Hardware, PeaksOfFormatsThatACardLacks) {
  Hardware h{.peak = {.fp32 = 10, .fp16 = 100, .fp8 = 400}};
  EXPECT_EQ(h.peak_flops(at::kDouble), 0);
  EXPECT_EQ(h.peak_flops(at::kBFloat16), 10e12);
  EXPECT_EQ(h.peak_flops(at::kBFloat16, true), 400e12);
  h.peak.fp8 = 0;
  EXPECT_EQ(h.peak_flops(at::kBFloat16, true), 100e12);
  EXPECT_EQ(lacking_format(read_hardware("h100"), at::kBFloat16, true), "");
  EXPECT_THAT(lacking_format(read_hardware("a10"), at::kBFloat16, true),
              HasSubstr("A10 multiplies no numbers of 8 bits"));
  EXPECT_THAT(lacking_format(h, at::kBFloat16, false), HasSubstr("has no bfloat16"));
  EXPECT_EQ(lacking_format(h, at::kFloat, false), "");
  for (const char* name : {"mi300x", "v100"})
    EXPECT_THAT(lacking_format(read_hardware(name), at::kFloat, false), HasSubstr("Trireme has no kernels for"));
}

}  // namespace
}  // namespace trireme::costs
