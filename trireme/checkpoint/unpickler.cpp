// The stack machine of a pickle, with calls left as data (pickle.h).
#include "trireme/checkpoint/pickle_globals.h"
#include "trireme/checkpoint/pickle_machine.h"

namespace trireme::checkpoint {

class Unpickler : PickleMachine {
 public:
  using PickleMachine::PickleMachine;

  PickleId run() {
    push_new(std::monostate{});
    pop();  // value 0: None
    if (take(1) != "\x80") fail("it does not begin with a protocol");
    const int protocol = static_cast<uint8_t>(take(1)[0]);
    if (protocol < 2 || protocol > 5) fail(fmt::format("its protocol is {}, not 2 to 5", protocol));
    while (true) {
      const auto op = static_cast<uint8_t>(take(1)[0]);
      if (op == '.') break;
      if (!scalar(op) && !text(op) && !container(op) && !stack(op) && !object(op)) {
        fail(fmt::format("it uses opcode 0x{:02x}, which no checkpoint needs", op));
      }
    }
    return pop();
  }

 private:
  bool scalar(uint8_t op) {
    switch (op) {
      case 'N':
        push(0);
        return true;
      case 0x88:
        push_new(true);
        return true;
      case 0x89:
        push_new(false);
        return true;
      case 'J':
        push_new(int64_t{number<int32_t>()});
        return true;
      case 'K':
        push_new(int64_t{number<uint8_t>()});
        return true;
      case 'M':
        push_new(int64_t{number<uint16_t>()});
        return true;
      case 'G':
        push_new(real());
        return true;
      case 0x8a:
        long_integer(number<uint8_t>());
        return true;
      case 0x8b:
        long_integer(number<uint32_t>());
        return true;
      default:
        return false;
    }
  }
  double real() {
    const uint64_t bits = __builtin_bswap64(number<uint64_t>());
    double value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }
  void long_integer(uint32_t length) {
    const std::string_view bytes = take(length);
    if (length > 8) {
      push_new(PickleBytes{bytes});
      return;
    }
    uint64_t value = length > 0 && (bytes.back() & 0x80) ? ~uint64_t{0} : 0;
    std::memcpy(&value, bytes.data(), length);
    push_new(static_cast<int64_t>(value));
  }

  bool text(uint8_t op) {
    switch (op) {
      case 0x8c:
      case 'U':
        push_new(PickleText{take(number<uint8_t>())});
        return true;
      case 'X':
      case 'T':
        push_new(PickleText{take(number<uint32_t>())});
        return true;
      case 0x8d:
        push_new(PickleText{take(number<uint64_t>())});
        return true;
      case 'C':
        push_new(PickleBytes{take(number<uint8_t>())});
        return true;
      case 'B':
        push_new(PickleBytes{take(number<uint32_t>())});
        return true;
      case 0x8e:
      case 0x96:
        push_new(PickleBytes{take(number<uint64_t>())});
        return true;
      default:
        return false;
    }
  }

  bool container(uint8_t op) {
    switch (op) {
      case ']':
      case 0x8f:
        push_new(PickleList{});
        return true;
      case '}':
        push_new(PickleDict{});
        return true;
      case ')':
        push_new(PickleTuple{});
        return true;
      case 'l':
      case 0x91:
        push_new(PickleList{pop_mark()});
        return true;
      case 't':
        push_new(PickleTuple{pop_mark()});
        return true;
      case 0x85:
        tuple(1);
        return true;
      case 0x86:
        tuple(2);
        return true;
      case 0x87:
        tuple(3);
        return true;
      case 'd': {
        std::vector<PickleId> items = pop_mark();
        if (items.size() % 2 != 0) fail("a dict has a key without a value");
        push_new(PickleDict{std::move(items)});
        return true;
      }
      case 'a': {
        const PickleId item = pop();
        append({&item, 1});
        return true;
      }
      case 'e':
      case 0x90:
        append(pop_mark());
        return true;
      case 's': {
        const PickleId value = pop(), key = pop();
        set_items(std::vector{key, value});
        return true;
      }
      case 'u':
        set_items(pop_mark());
        return true;
      default:
        return false;
    }
  }
  void tuple(int count) { push_new(PickleTuple{pop(count)}); }
  /// Items given to an object that is no list, say a subclass of one, say nothing about tensors.
  void append(std::span<const PickleId> items) {
    auto* list = std::get_if<PickleList>(&values_[top()]);
    if (!list && !std::holds_alternative<PickleCall>(values_[top()])) fail("it adds items to what is no list");
    for (const PickleId item : items) {
      if (list) grow(list->items, item);
    }
  }
  void set_items(const std::vector<PickleId>& items) {
    auto* dict = std::get_if<PickleDict>(&values_[top()]);
    if (!dict && !std::holds_alternative<PickleCall>(values_[top()])) fail("it sets items of what is no dict");
    if (items.size() % 2 != 0) fail("a dict has a key without a value");
    for (const PickleId item : items) {
      if (dict) grow(dict->items, item);
    }
  }

  bool stack(uint8_t op) {
    switch (op) {
      case '(':
        mark();
        return true;
      case '0':
        pop();
        return true;
      case '1':
        pop_mark();
        return true;
      case '2':
        push(top());
        return true;
      case 0x95:
        skip_frame();
        return true;
      case 0x94:
        remember_next();
        return true;
      case 'q':
        remember(number<uint8_t>());
        return true;
      case 'r':
        remember(number<uint32_t>());
        return true;
      case 'h':
        recall(number<uint8_t>());
        return true;
      case 'j':
        recall(number<uint32_t>());
        return true;
      default:
        return false;
    }
  }
  bool object(uint8_t op) {
    switch (op) {
      case 'c': {
        const std::string_view module = line();
        global(module, line());
        return true;
      }
      case 0x93: {
        const auto* name = std::get_if<PickleText>(&values_[pop()]);
        const auto* module = std::get_if<PickleText>(&values_[pop()]);
        if (!name || !module) fail("a global's name is no text");
        global(module->text, name->text);
        return true;
      }
      case 'R':
      case 0x81: {
        const PickleId arguments = pop();
        call(pop(), arguments);
        return true;
      }
      case 0x92: {
        pop();  // keyword arguments
        const PickleId arguments = pop();
        call(pop(), arguments);
        return true;
      }
      case 'b':
        build(pop());
        return true;
      case 'Q':
        push_new(PicklePersistent{pop()});
        return true;
      default:
        return false;
    }
  }
  void global(std::string_view module, std::string_view name) {
    const PickleGlobal* known = find_pickle_global(module, name);
    if (!known) {
      fail(
          fmt::format("it asks for {}.{}, which is not among the names a checkpoint needs, and no code of a file is "
                      "run here; save only the tensors (torch.save(model.state_dict(), path))",
                      module.substr(0, 200), name.substr(0, 200)));
    }
    push_new(known);
  }
  void call(PickleId function, PickleId arguments) {
    const auto* known = std::get_if<const PickleGlobal*>(&values_[function]);
    if (!known) fail("it calls what is no name");
    if (!std::holds_alternative<PickleTuple>(values_[arguments])) fail("the arguments of a call are no tuple");
    const std::span<const PickleId> items = items_of(arguments);
    switch ((*known)->role) {
      case PickleGlobal::Role::mapping:
        mapping(items);
        return;
      case PickleGlobal::Role::argument: {
        if (items.empty()) fail(fmt::format("{}.{} is called without arguments", (*known)->module, (*known)->name));
        return push(items[0]);
      }
      case PickleGlobal::Role::inert:
        push_new(PickleCall{.function = *known, .arguments = arguments});
        return;
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
    push_new(std::move(dict));
  }
  /// The attributes of a dict, such as a state_dict's _metadata, are no tensors.
  void build(PickleId state) {
    if (auto* call = std::get_if<PickleCall>(&values_[top()])) {
      call->state = state;
    } else if (!std::holds_alternative<PickleDict>(values_[top()])) {
      fail("it gives attributes to what has none");
    }
  }
};

Pickle::Pickle(std::string bytes, ReadBudget& budget) : bytes_(std::move(bytes)) {
  budget.take(static_cast<int64_t>(bytes_.size()));
  root_ = Unpickler(bytes_, values_, budget).run();
}

}  // namespace trireme::checkpoint
