// Python pickles as data: what torch.save, DCP and Megatron-like files hold, as a tree of values, and the few opcodes
// needed to write such files.
//
// A pickle is a program for a stack machine that may call anything Python can import. Here nothing is ever called: a
// call stays in the tree as a name with arguments, the name has to be one of a fixed list, and everything else is
// refused by its name. Values are numbers in one arena, not pointers, so that sharing and cycles cost nothing and no
// depth of nesting can overflow the stack of the process.
// Source: Python's Lib/pickletools.py (opcodes), torch/_weights_only_unpickler.py (which names checkpoints need).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trireme/checkpoint/read_budget.h"

namespace trireme::checkpoint {

using PickleId = uint32_t;

/// A name that pickles may use; what it does to the tree.
struct PickleGlobal {
  enum class Role : uint8_t {
    inert,     ///< a call stays a PickleCall
    mapping,   ///< a call makes a dict: OrderedDict
    argument,  ///< a call is its first argument: torch.Size
  };
  std::string_view module;
  std::string_view name;
  Role role = Role::inert;

  bool is(std::string_view module_, std::string_view name_) const { return module == module_ && name == name_; }
};

struct PickleText {
  std::string_view text;
};
struct PickleBytes {  ///< also whole numbers beyond 64 bits
  std::string_view bytes;
};
struct PickleList {  ///< also sets
  std::vector<PickleId> items;
};
struct PickleTuple {
  std::vector<PickleId> items;
};
struct PickleDict {
  std::vector<PickleId> items;  ///< key, value, key, value, ...
};
struct PickleCall {
  const PickleGlobal* function = nullptr;
  PickleId arguments = 0;
  PickleId state = 0;  ///< what BUILD gave it; 0 for none: value 0 is always None
};
struct PicklePersistent {
  PickleId id = 0;
};
using PickleValue = std::variant<std::monostate, bool, int64_t, double, PickleText, PickleBytes, PickleList,
                                 PickleTuple, PickleDict, const PickleGlobal*, PickleCall, PicklePersistent>;

/// The items of a list or tuple, the keys and values of a dict, and nothing for others.
std::span<const PickleId> pickle_items(const PickleValue& value);

class Pickle {
 public:
  /// Reads protocols 2 to 5; `bytes` stay in memory, texts are views of them.
  ///
  /// Cost      one pass; at most what `budget` has left
  /// Errors    CheckpointError: an opcode or a name that is not allowed, a pickle that is cut off or breaks its own
  ///           rules, one that asks for more memory than `budget` has
  Pickle(std::string bytes, ReadBudget& budget);

  PickleId root() const { return root_; }
  const PickleValue& at(PickleId id) const { return values_[id]; }
  size_t size() const { return values_.size(); }

  /// Nothing when the value is of another kind.
  std::optional<std::string_view> text(PickleId id) const;
  std::optional<int64_t> integer(PickleId id) const;
  std::span<const PickleId> items(PickleId id) const { return pickle_items(values_[id]); }
  bool is_dict(PickleId id) const { return std::holds_alternative<PickleDict>(values_[id]); }
  /// The value of a text key of a dict, or None (0).
  PickleId find(PickleId dict, std::string_view key) const;
  /// The arguments of a call of module.name, or nothing; `state` is then state_of(id).
  std::optional<std::span<const PickleId>> call(PickleId id, std::string_view module, std::string_view name) const;
  PickleId state_of(PickleId id) const;
  /// A tuple of whole numbers.
  std::optional<std::vector<int64_t>> integers(PickleId id) const;

 private:
  std::string bytes_;
  std::deque<PickleValue> values_;
  PickleId root_ = 0;
};

/// Writes protocol 2, value by value, without a memo.
class PickleWriter {
 public:
  PickleWriter() : bytes_("\x80\x02") {}
  PickleWriter& none() { return op('N'); }
  PickleWriter& boolean(bool value) { return op(value ? '\x88' : '\x89'); }
  PickleWriter& integer(int64_t value);
  PickleWriter& text(std::string_view value);
  PickleWriter& global(std::string_view module, std::string_view name);
  PickleWriter& integers(std::span<const int64_t> values);  ///< a tuple
  PickleWriter& mark() { return op('('); }
  PickleWriter& tuple() { return op('t'); }        ///< of everything since mark()
  PickleWriter& empty_tuple() { return op(')'); }
  PickleWriter& empty_dict() { return op('}'); }
  PickleWriter& empty_list() { return op(']'); }
  PickleWriter& set_items() { return op('u'); }    ///< keys and values since mark() into the dict below it
  PickleWriter& append() { return op('a'); }       ///< the value on top into the list below it
  PickleWriter& call() { return op('R'); }         ///< callable, tuple -> result
  PickleWriter& create() { return op('\x81'); }    ///< class, tuple -> object
  PickleWriter& build() { return op('b'); }        ///< object, state -> object
  PickleWriter& persistent() { return op('Q'); }   ///< id -> value
  std::string finish() { return bytes_ + '.'; }

 private:
  PickleWriter& op(char code) {
    bytes_ += code;
    return *this;
  }
  std::string bytes_;
};

}  // namespace trireme::checkpoint
