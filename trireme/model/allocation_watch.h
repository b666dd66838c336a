// Counts what this thread allocates from LibTorch's CPU allocator while it exists, by the hook that LibTorch's
// profiler uses. The probe of wrapped units reads it.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <memory>

namespace trireme::model {

class AllocationWatch {
 public:
  int64_t live() const { return count_->live; }   ///< bytes; what was there before does not count when it is freed
  int64_t peak() const { return count_->peak; }   ///< largest live() so far

 private:
  struct Count : c10::MemoryReportingInfoBase {
    int64_t live = 0, peak = 0;
    void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
      live += bytes;
      peak = std::max(peak, live);
    }
    bool memoryProfilingEnabled() const override { return true; }
  };
  std::shared_ptr<Count> count_ = std::make_shared<Count>();
  c10::DebugInfoGuard guard_{c10::DebugInfoKind::PROFILER_STATE, count_};
};

}  // namespace trireme::model
