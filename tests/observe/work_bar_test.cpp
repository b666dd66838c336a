#include "trireme/observe/work_bar.h"

#include <gtest/gtest.h>

namespace trireme::observe {
namespace {

TEST(WorkBar, SaysHowFarAndHowLong) {
  EXPECT_EQ(work_bar_text("perplexity", 0.5, 8), "perplexity  [##########..........]  50 %  eta 8.0s");
  EXPECT_EQ(work_bar_text("loading", 1, 8), "loading  [####################] 100 %");
  EXPECT_EQ(work_bar_text("loading", -1, 8), "loading  [....................]   0 %");
}

TEST(WorkBar, SaysNothingOfShortWork) {
  std::FILE* file = std::tmpfile();
  {
    WorkBar bar("short", file);
    for (int i = 0; i <= 10; ++i) bar.show(i / 10.0);
  }
  EXPECT_EQ(std::ftell(file), 0);
  std::fclose(file);
}

}  // namespace
}  // namespace trireme::observe
