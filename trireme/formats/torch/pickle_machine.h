// PickleMachine: input, stack, memo and memory of the machine that reads a pickle (unpickler.cpp has its opcodes).
#pragma once

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/formats/torch/pickle.h"

namespace trireme::formats {

/// The allowed global of this name; null for names that checkpoints do not need.
const PickleGlobal* find_pickle_global(std::string_view module, std::string_view name);

class PickleMachine {
 public:
  PickleMachine(std::string_view input, std::deque<PickleValue>& values, ReadBudget& budget)
      : values_(values), budget_(budget), input_(input) {}

  size_t position() const { return position_; }

 protected:
  [[noreturn]] void fail(const std::string& problem) const {
    throw CheckpointError(fmt::format("{} holds no sound pickle: {} (byte {} of {})", budget_.path(), problem,
                                      position_, base::plural(std::ssize(input_), "byte")),
                          budget_.path());
  }

  std::string_view take(uint64_t count) {
    if (count > input_.size() - position_) fail("it is cut off");
    const std::string_view result = input_.substr(position_, count);
    position_ += count;
    return result;
  }
  template <class Number>
  Number number() {
    Number value = 0;
    take(sizeof(value)).copy(reinterpret_cast<char*>(&value), sizeof(value));
    return value;
  }
  std::string_view line() {
    const size_t end = input_.find('\n', position_);
    if (end == std::string_view::npos) fail("it is cut off");
    const std::string_view result = input_.substr(position_, end - position_);
    position_ = end + 1;
    return result;
  }

  /// Appends an item and charges the vector's new memory. A growing vector needs half as much more for a moment.
  template <class Item>
  void grow(std::vector<Item>& items, Item item) {
    if (items.size() == items.capacity()) {
      const size_t capacity = items.empty() ? 4 : items.capacity() * 2;
      budget_.take(static_cast<int64_t>((capacity - items.capacity()) * sizeof(Item)) + 16);
      items.reserve(capacity);
    }
    items.push_back(item);
  }
  void push(PickleId id) { grow(stack_, id); }
  void put(PickleValue value) {
    budget_.take(sizeof(PickleValue));
    values_.push_back(std::move(value));
    push(static_cast<PickleId>(values_.size() - 1));
  }
  PickleId pop() {
    const size_t floor = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() <= floor) fail("it takes a value from an empty stack");
    const PickleId id = stack_.back();
    stack_.pop_back();
    return id;
  }
  PickleId top() {
    const PickleId id = pop();
    push(id);
    return id;
  }
  std::vector<PickleId> pop_mark() {
    if (marks_.empty()) fail("it ends a group that it did not begin");
    const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    budget_.take(static_cast<int64_t>(stack_.end() - first) * static_cast<int64_t>(sizeof(PickleId)) + 16);
    std::vector<PickleId> items(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return items;
  }
  std::vector<PickleId> pop(int count) {
    budget_.take(count * static_cast<int64_t>(sizeof(PickleId)) + 16);
    std::vector<PickleId> items(count);
    for (auto item = items.rbegin(); item != items.rend(); ++item) *item = pop();
    return items;
  }
  void remember(size_t index) {
    if (index > memo_.size()) fail(fmt::format("it keeps value {} before value {}", index, memo_.size()));
    if (index == memo_.size()) return grow(memo_, top());
    memo_[index] = top();
  }
  void remember_next() { remember(memo_.size()); }
  void recall(size_t index) {
    if (index >= memo_.size()) fail(fmt::format("it recalls value {}, which it did not keep", index));
    push(memo_[index]);
  }
  void mark() { grow(marks_, stack_.size()); }
  void skip_frame() {
    if (number<uint64_t>() > input_.size() - position_) fail("it is cut off");
  }
  std::span<const PickleId> items_of(PickleId id) const { return pickle_items(values_[id]); }

  std::deque<PickleValue>& values_;

 private:
  ReadBudget& budget_;
  std::string_view input_;
  size_t position_ = 0;
  std::vector<PickleId> stack_;
  std::vector<size_t> marks_;
  std::vector<PickleId> memo_;
};

}  // namespace trireme::formats
