// Which values of a placed list begin and end with each action. Whoever looks at every action asks here, because a
// search among all values for each action would take time with the square of the list's length.
#pragma once

#include <span>
#include <vector>

#include "trireme/schedule/schedule.h"

namespace trireme::schedule {

/// Values that persist, and those that are held, are left out.
class Lifetimes {
 public:
  /// Cost      linear in values and actions
  explicit Lifetimes(const Schedule& schedule);

  /// Values whose first action this is, and whose last, in their order.
  std::span<const int> beginning(int action) const { return beginning_.at(action); }
  std::span<const int> ending(int action) const { return ending_.at(action); }
  /// Whether another value takes over the bytes of this one.
  bool continues(int value) const { return continues_[static_cast<size_t>(value)]; }

 private:
  struct ByAction {
    std::vector<int> values;
    std::vector<size_t> begins;  ///< of each action, where its values begin; one more, for the end
    std::span<const int> at(int action) const {
      const auto i = static_cast<size_t>(action);
      return {values.data() + begins[i], begins[i + 1] - begins[i]};
    }
  };
  static ByAction by_action(const Schedule& schedule, int Value::* when);

  ByAction beginning_, ending_;
  std::vector<bool> continues_;
};

}  // namespace trireme::schedule
