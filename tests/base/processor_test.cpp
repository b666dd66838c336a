#include "trireme/base/processor.h"

#include <gtest/gtest.h>

#include <fstream>
#include <initializer_list>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

namespace trireme::base {
namespace {

// The kernel's list names only what it lets programs use.
std::set<std::string> flags_of_the_kernel() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("flags")) {
      std::istringstream words(line.substr(line.find(':') + 1));
      return {std::istream_iterator<std::string>(words), {}};
    }
  return {};
}

TEST(Processor, HasWhatTheKernelSays) {
  const std::set<std::string> flags = flags_of_the_kernel();
  if (flags.empty()) GTEST_SKIP() << "/proc/cpuinfo lists no flags";
  const auto all = [&](std::initializer_list<const char*> names) {
    for (const char* name : names)
      if (!flags.contains(name)) return false;
    return true;
  };
  const Processor& has = processor();
  EXPECT_EQ(has.avx2, all({"avx2", "fma", "f16c"}));
  EXPECT_EQ(has.avx512, all({"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl"}));
  EXPECT_EQ(has.avx512_bf16, has.avx512 && all({"avx512_bf16"}));
  EXPECT_EQ(has.amx_bf16, all({"amx_tile", "amx_bf16"}));
  EXPECT_EQ(has.multiplies_bf16(), has.avx512_bf16 || has.amx_bf16);
}

}  // namespace
}  // namespace trireme::base
