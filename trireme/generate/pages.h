// Pages of the cache: which are free, and how many texts read one.
#pragma once

#include <cstdint>
#include <vector>

namespace trireme::generate {

class Pages {
 public:
  explicit Pages(int64_t count) : readers_(static_cast<size_t>(count), 0) {
    for (int64_t page = count; page-- > 0;) free_.push_back(static_cast<int32_t>(page));
  }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }
  int64_t count() const { return static_cast<int64_t>(readers_.size()); }
  /// The page that take() gives; there must be a free one.
  int32_t free_page() const { return free_.back(); }
  int32_t take() {
    const int32_t page = free_.back();
    free_.pop_back();
    readers_[static_cast<size_t>(page)] = 1;
    return page;
  }
  void share(int32_t page) { ++readers_[static_cast<size_t>(page)]; }
  /// The last reader frees it.
  void leave(int32_t page) {
    if (--readers_[static_cast<size_t>(page)] == 0) free_.push_back(page);
  }

 private:
  std::vector<int32_t> free_;
  std::vector<int32_t> readers_;
};

}  // namespace trireme::generate
