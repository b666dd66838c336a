// Python pickles, as torch.save, DCP and Megatron-like files hold them. Pickle reads one as a tree of values;
// PickleWriter has the few opcodes needed to write such files.
//
// A pickle is a program for a stack machine that may call anything that Python can import. Here nothing is ever called:
// a call stays in the tree as a name with arguments. Names outside of a fixed list are refused. Values are indices into
// one array, not pointers. So shared values and cycles cost nothing, and deep nesting cannot overflow the process's
// stack.
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

#include "trireme/formats/vocabulary.h"

namespace trireme::formats {

using PickleId = uint32_t;

/// A name that pickles may use, and its effect on the tree.
struct PickleGlobal {
  enum class Role : uint8_t {
    inert,  ///< a call stays a PickleCall
    mapping,  ///< a call makes a dict: OrderedDict
    argument,  ///< a call becomes its first argument: torch.Size
  };
  std::string_view module;
  std::string_view name;
  Role role = Role::inert;

  bool is(std::string_view module_, std::string_view name_) const { return module == module_ && name == name_; }
};

struct PickleText {
  std::string_view text;
};
struct PickleBytes {  ///< also used for whole numbers beyond 64 bits
  std::string_view bytes;
};
struct PickleList {  ///< also used for sets
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
  PickleId state = 0;  ///< set by opcode BUILD; 0: no state (value 0 is always None)
};
struct PicklePersistent {
  PickleId id = 0;
};
using PickleValue = std::variant<std::monostate, bool, int64_t, double, PickleText, PickleBytes, PickleList,
                                 PickleTuple, PickleDict, const PickleGlobal*, PickleCall, PicklePersistent>;

/// The items of a list or tuple, or the keys and values of a dict; empty for other values.
std::span<const PickleId> pickle_items(const PickleValue& value);

class Pickle {
 public:
  /// Reads protocols 2 to 5. Keeps `bytes` in memory, because texts are views of them.
  ///
  /// Cost      one pass; at most the memory that `budget` has left
  /// Errors    CheckpointError: an opcode or a name that is not allowed, a pickle that is cut off or breaks its own
  ///           rules, one that asks for more memory than `budget` has
  Pickle(std::string bytes, ReadBudget& budget);
  /// The same for one pickle at the beginning of `bytes`, which are not copied and must outlive this object.
  static Pickle first_of(std::string_view bytes, ReadBudget& budget);

  size_t bytes_read() const { return bytes_read_; }  ///< the pickle's length
  PickleId root() const { return root_; }
  const PickleValue& at(PickleId id) const { return values_[id]; }
  size_t size() const { return values_.size(); }

  /// These two return nothing if the value is of another kind.
  std::optional<std::string_view> text(PickleId id) const;
  std::optional<int64_t> integer(PickleId id) const;
  std::span<const PickleId> items(PickleId id) const { return pickle_items(values_[id]); }
  bool is_none(PickleId id) const { return std::holds_alternative<std::monostate>(values_[id]); }
  bool is_dict(PickleId id) const { return std::holds_alternative<PickleDict>(values_[id]); }
  /// The value of a text key of a dict, or None (0).
  PickleId find(PickleId dict, std::string_view key) const;
  /// The arguments if the value is a call of module.name. state_of(id) is the call's state.
  std::optional<std::span<const PickleId>> call(PickleId id, std::string_view module, std::string_view name) const;
  PickleId state_of(PickleId id) const;
  /// The id of a persistent value; nothing for other values.
  std::optional<PickleId> persistent(PickleId id) const;
  /// A tuple of whole numbers.
  std::optional<std::vector<int64_t>> integers(PickleId id) const;

 private:
  Pickle() = default;

  std::string bytes_;
  std::deque<PickleValue> values_;
  PickleId root_ = 0;
  size_t bytes_read_ = 0;
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
  PickleWriter& tuple() { return op('t'); }  ///< of all values since mark()
  PickleWriter& empty_tuple() { return op(')'); }
  PickleWriter& empty_dict() { return op('}'); }
  PickleWriter& empty_list() { return op(']'); }
  PickleWriter& set_items() { return op('u'); }  ///< puts keys and values since mark() into the dict below mark
  PickleWriter& append() { return op('a'); }  ///< puts the top value into the list below it
  PickleWriter& call() { return op('R'); }  ///< callable, tuple -> result
  PickleWriter& create() { return op('\x81'); }  ///< class, tuple -> object
  PickleWriter& build() { return op('b'); }  ///< object, state -> object
  PickleWriter& persistent() { return op('Q'); }  ///< id -> value
  std::string finish() { return bytes_ + '.'; }

 private:
  PickleWriter& op(char code) {
    bytes_ += code;
    return *this;
  }
  std::string bytes_;
};

}  // namespace trireme::formats
