// Who is told to have caused the end of a rank.
#include "trireme/train/failure.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/checkpoint/agree.h"

namespace trireme::train {
namespace {

using launch::Fault;
using std::chrono::milliseconds;

TEST(Failure, APeersErrorsAreNotThisRanksOwn) {
  EXPECT_EQ(fault_of(std::runtime_error("the disk is gone")), Fault::own);
  EXPECT_EQ(fault_of(UsageError("[trainer] accumulate=0")), Fault::own);
  EXPECT_EQ(fault_of(CommError("[comm] rank 1 is gone", {.elapsed = milliseconds(3), .timeout = milliseconds(9)})),
            Fault::lost_peer);
  EXPECT_EQ(fault_of(CommError("[comm] rank 1 is late", {.elapsed = milliseconds(9), .timeout = milliseconds(9)})),
            Fault::timeout);
  EXPECT_EQ(fault_of(checkpoint::RankError("no memory", /*is_own=*/true)), Fault::own);
  EXPECT_EQ(fault_of(checkpoint::RankError("no memory", /*is_own=*/false)), Fault::lost_peer);
}

}  // namespace
}  // namespace trireme::train
