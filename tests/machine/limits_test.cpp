#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "trireme/base/processor.h"
#include "trireme/base/stopwatch.h"
#include "trireme/machine/limits.h"
#include "trireme/ops/ops.h"

namespace trireme::machine {
namespace {

// No machine that trains is outside these bounds; a loop that the compiler removed, or one that spills, is.
constexpr double kGiga = 1e9;
bool is_possible_flops(double flops) { return flops > 0.5 * kGiga && flops < 10000 * kGiga; }
bool is_possible_bandwidth(double bandwidth) { return bandwidth > 0.5 * kGiga && bandwidth < 4000 * kGiga; }

// Two measurements of a machine that others use too may be disturbed differently: a relation has to hold once in
// several attempts. A loop that measures something else fails all of them.
template <class Holds>
bool holds_once(Holds holds) {
  for (int attempt = 0; attempt < 20; ++attempt)
    if (holds()) return true;
  return false;
}

TEST(RegisterLoop, IsAsFastAsAProcessorCanBeAndNoFaster) {
  EXPECT_TRUE(holds_once([] {
    const double fp64 = register_loop_flops(at::kDouble, 1), fp32 = register_loop_flops(at::kFloat, 1),
                 bf16 = register_loop_flops(at::kBFloat16, 1);
    // Half as wide elements, twice as many a vector; a tile's multiply-adds are those of many vectors.
    const double least = base::processor().amx_bf16 ? 4 : 0.9;
    return is_possible_flops(fp64) && is_possible_flops(bf16) && fp32 > 1.8 * fp64 && fp32 < 2.2 * fp64 &&
           bf16 > least * fp32;
  }));
}

/// The better of LibTorch's product and ours: neither is near the limit of every processor.
double product_flops(at::ScalarType dtype) {
  constexpr int64_t kSize = 512;
  const at::Tensor a = at::rand({kSize, kSize}).to(dtype), b = at::rand({kSize, kSize}).to(dtype);
  at::Tensor c = at::empty({kSize, kSize}, dtype);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  double best = 1e9;
  for (int i = 0; i < 20; ++i) {
    const base::Stopwatch watch;
    i % 2 == 0 ? void(at::mm_out(c, a, b)) : ops::linear_forward(c, a, b);
    best = std::min(best, watch.seconds());
  }
  at::set_num_threads(threads);
  return 2.0 * kSize * kSize * kSize / best;
}

TEST(RegisterLoop, IsAboveWhatAProductOfMatricesReaches) {
#ifdef TRIREME_SANITIZED
  GTEST_SKIP() << "LibTorch's products are not slowed down by sanitizers, and this loop is";
#endif
  EXPECT_TRUE(holds_once([] {
    const double limit = register_loop_flops(at::kFloat, 1), product = product_flops(at::kFloat);
    return limit > product && limit < 2 * product;
  }));
  // Nothing feeds matrix units as fast as registers do.
  EXPECT_TRUE(holds_once([] { return register_loop_flops(at::kBFloat16, 1) > product_flops(at::kBFloat16); }));
}

TEST(RegisterLoop, SaysWhereTheMultiplyAddsAre) {
  EXPECT_STREQ(register_loop_place(at::kFloat), "registers");
  EXPECT_STREQ(register_loop_place(at::kBFloat16), base::processor().amx_bf16 ? "AMX tiles" : "registers");
}

TEST(RegisterLoop, CountsEveryThread) {
  EXPECT_TRUE(holds_once([] {
    const double one = register_loop_flops(at::kFloat, 1), two = register_loop_flops(at::kFloat, 2);
    return two > 0.9 * one && two < 2.1 * one;  // as many cores as there are to be had
  }));
}

TEST(RegisterPasses, GiveWhatTheLoopGives) {
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const RegisterPasses passes(dtype, 1);
    EXPECT_TRUE(holds_once([&] {
      const double one = passes.flops(), best = register_loop_flops(dtype, 1);
      return one > 0.5 * best && one < 1.2 * best;
    }));
  }
}

TEST(CopyBandwidth, IsThatOfMemoryBeyondTheCachesAndHigherInside) {
  EXPECT_TRUE(holds_once([] {
    const CopyBandwidth beyond = measure_copy(1), inside = measure_copy(1, base::core_cache_bytes() / 4);
    return is_possible_bandwidth(beyond.library) && is_possible_bandwidth(beyond.plain) &&
           inside.best() > 1.2 * beyond.best();
  }));
  EXPECT_EQ((CopyBandwidth{.library = 1, .plain = 2, .past_caches = 3}.best()), 3);
  EXPECT_EQ((CopyBandwidth{.library = 3, .plain = 2}.best()), 3);
}

TEST(MemoryPasses, GiveWhatTheLimitsGive) {
  MemoryPasses passes(1, 64 << 20);
  const auto near = [](double one, double other) { return one > 0.5 * other && one < 2 * other; };
  EXPECT_TRUE(holds_once([&] { return near(passes.copy(), measure_copy(1, 64 << 20).best()); }));
  EXPECT_TRUE(holds_once([&] { return near(passes.update(), update_bandwidth(1, 64 << 20)); }));
  EXPECT_TRUE(holds_once([&] { return near(passes.read(), read_bandwidth(1, 64 << 20)); }));
}

TEST(UpdateBandwidth, IsNoLessThanAPlainCopysWhichFetchesWhatItOverwrites) {
  EXPECT_TRUE(holds_once([] {
    const double update = update_bandwidth(1);
    return is_possible_bandwidth(update) && update > measure_copy(1).plain;
  }));
}

TEST(ReadBandwidth, IsMoreThanHalfOfACopys) {
  EXPECT_TRUE(holds_once([] {
    const double read = read_bandwidth(1);
    return is_possible_bandwidth(read) && read > 0.5 * measure_copy(1).best();
  }));
}

TEST(Caches, GrowOutwards) {
  EXPECT_GE(base::core_cache_bytes(), 64 << 10);
  EXPECT_GE(base::last_level_cache_bytes(), base::core_cache_bytes());
}

}  // namespace
}  // namespace trireme::machine
