// The stack machine of a pickle. It stores calls as data (pickle.h).
#include <bit>
#include <cstring>

#include "trireme/base/text.h"
#include "trireme/formats/torch/pickle_machine.h"

namespace trireme::formats {

class Unpickler : PickleMachine {
 public:
  using PickleMachine::PickleMachine;
  using PickleMachine::position;

  PickleId run() {
    put(std::monostate{});
    pop();  // value 0: None
    if (take(1) != "\x80") fail("it does not begin with a protocol");
    const int protocol = static_cast<uint8_t>(take(1)[0]);
    if (protocol < 2 || protocol > 5) fail(fmt::format("its protocol is {}, not 2 to 5", protocol));
    for (uint8_t op; (op = number<uint8_t>()) != '.';) scalar(op);
    return pop();
  }

 private:
  // Each of these functions knows some opcodes and passes the others to the next function.
  void scalar(uint8_t op) {
    switch (op) {
      case 'N':
        return push(0);
      case 0x88:
        return put(true);
      case 0x89:
        return put(false);
      case 'J':
        return put(int64_t{number<int32_t>()});
      case 'K':
        return put(int64_t{number<uint8_t>()});
      case 'M':
        return put(int64_t{number<uint16_t>()});
      case 'G':
        return put(std::bit_cast<double>(__builtin_bswap64(number<uint64_t>())));
      case 0x8a:
        return long_integer(number<uint8_t>());
      case 0x8b:
        return long_integer(number<uint32_t>());
      default:
        return text(op);
    }
  }
  void long_integer(uint32_t length) {
    const std::string_view bytes = take(length);
    if (length > 8) return put(PickleBytes{bytes});
    uint64_t value = length > 0 && (bytes.back() & 0x80) ? ~uint64_t{0} : 0;
    std::memcpy(&value, bytes.data(), length);
    put(static_cast<int64_t>(value));
  }

  void text(uint8_t op) {
    switch (op) {
      case 0x8c:
      case 'U':
        return put(PickleText{take(number<uint8_t>())});
      case 'X':
      case 'T':
        return put(PickleText{take(number<uint32_t>())});
      case 0x8d:
        return put(PickleText{take(number<uint64_t>())});
      case 'C':
        return put(PickleBytes{take(number<uint8_t>())});
      case 'B':
        return put(PickleBytes{take(number<uint32_t>())});
      case 0x8e:
      case 0x96:
        return put(PickleBytes{take(number<uint64_t>())});
      default:
        return container(op);
    }
  }

  void container(uint8_t op) {
    switch (op) {
      case ']':
      case 0x8f:
        return put(PickleList{});
      case '}':
        return put(PickleDict{});
      case ')':
        return put(PickleTuple{});
      case 'l':
      case 0x91:
        return put(PickleList{pop_mark()});
      case 't':
        return put(PickleTuple{pop_mark()});
      case 0x85:
      case 0x86:
      case 0x87:
        return put(PickleTuple{pop(op - 0x84)});
      case 'd':
        return put(PickleDict{in_pairs(pop_mark())});
      case 'a':
        return append({pop()});
      case 'e':
      case 0x90:
        return append(pop_mark());
      case 's': {
        const PickleId value = pop(), key = pop();
        return set_items({key, value});
      }
      case 'u':
        return set_items(pop_mark());
      default:
        return stack(op);
    }
  }
  std::vector<PickleId> in_pairs(std::vector<PickleId> items) const {
    if (items.size() % 2 != 0) fail("a dict has a key without a value");
    return items;
  }
  /// Items of an object that is no list, such as one of a subclass, say nothing about tensors.
  void append(const std::vector<PickleId>& items) {
    auto* list = std::get_if<PickleList>(&values_[top()]);
    if (!list && !std::holds_alternative<PickleCall>(values_[top()])) fail("it adds items to what is no list");
    if (!list) return;
    for (const PickleId item : items) grow(list->items, item);
  }
  void set_items(const std::vector<PickleId>& items) {
    auto* dict = std::get_if<PickleDict>(&values_[top()]);
    if (!dict && !std::holds_alternative<PickleCall>(values_[top()])) fail("it sets items of what is no dict");
    for (const PickleId item : in_pairs(items))
      if (dict) grow(dict->items, item);
  }

  void stack(uint8_t op) {
    switch (op) {
      case '(':
        return mark();
      case '0':
        pop();
        return;
      case '1':
        pop_mark();
        return;
      case '2':
        return push(top());
      case 0x95:
        return skip_frame();
      case 0x94:
        return remember_next();
      case 'q':
        return remember(number<uint8_t>());
      case 'r':
        return remember(number<uint32_t>());
      case 'h':
        return recall(number<uint8_t>());
      case 'j':
        return recall(number<uint32_t>());
      default:
        return object(op);
    }
  }

  void object(uint8_t op) {
    switch (op) {
      case 'c': {
        const std::string_view module = line();
        return global(module, line());
      }
      case 0x93: {
        const auto* name = std::get_if<PickleText>(&values_[pop()]);
        const auto* module = std::get_if<PickleText>(&values_[pop()]);
        if (!name || !module) fail("a global's name is no text");
        return global(module->text, name->text);
      }
      case 0x92:
        pop();  // keyword arguments
        [[fallthrough]];
      case 'R':
      case 0x81: {
        const PickleId arguments = pop();
        return call(pop(), arguments);
      }
      case 'b':
        return build(pop());
      case 'Q':
        return put(PicklePersistent{pop()});
      default:
        fail(fmt::format("it uses opcode 0x{:02x}, which no checkpoint needs", op));
    }
  }
  void global(std::string_view module, std::string_view name) {
    const PickleGlobal* known = find_pickle_global(module, name);
    if (!known)
      fail(
          fmt::format("it asks for {}.{}, which is not among the names a checkpoint needs, and no code of a file is "
                      "run here; save only the tensors (torch.save(model.state_dict(), path))",
                      base::shortened(module, 200), base::shortened(name, 200)));
    put(known);
  }
  void call(PickleId function, PickleId arguments) {
    const auto* known = std::get_if<const PickleGlobal*>(&values_[function]);
    if (!known) fail("it calls what is no name");
    if (!std::holds_alternative<PickleTuple>(values_[arguments])) fail("the arguments of a call are no tuple");
    const std::span<const PickleId> items = items_of(arguments);
    switch ((*known)->role) {
      case PickleGlobal::Role::mapping:
        return mapping(items);
      case PickleGlobal::Role::argument:
        if (items.empty()) fail(fmt::format("{}.{} is called without arguments", (*known)->module, (*known)->name));
        return push(items[0]);
      case PickleGlobal::Role::inert:
        return put(PickleCall{.function = *known, .arguments = arguments});
    }
  }
  /// OrderedDict() or OrderedDict([[key, value], ...]); defaultdict(factory).
  void mapping(std::span<const PickleId> arguments) {
    PickleDict dict;
    if (!arguments.empty()) {
      for (const PickleId pair : items_of(arguments[0])) {
        const std::span<const PickleId> items = items_of(pair);
        if (items.size() != 2) fail("a dict is made of what are no pairs");
        for (const PickleId item : items) grow(dict.items, item);
      }
    }
    put(std::move(dict));
  }
  /// Attributes of a dict, such as a state_dict's _metadata, are ignored: they hold no tensors.
  void build(PickleId state) {
    if (auto* call = std::get_if<PickleCall>(&values_[top()]))
      call->state = state;
    else if (!std::holds_alternative<PickleDict>(values_[top()]))
      fail("it gives attributes to what has none");
  }
};

Pickle::Pickle(std::string bytes, ReadBudget& budget) : bytes_(std::move(bytes)) {
  budget.take(std::ssize(bytes_));
  Unpickler machine(bytes_, values_, budget);
  root_ = machine.run();
  bytes_read_ = machine.position();
}

Pickle Pickle::first_of(std::string_view bytes, ReadBudget& budget) {
  Pickle pickle;
  Unpickler machine(bytes, pickle.values_, budget);
  pickle.root_ = machine.run();
  pickle.bytes_read_ = machine.position();
  return pickle;
}

}  // namespace trireme::formats
