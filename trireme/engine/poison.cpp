#include <fmt/format.h>

#include <cstring>

#include "trireme/base/error.h"
#include "trireme/engine/engine.h"

namespace trireme::engine {

using schedule::Memory;
using schedule::Schedule;
using schedule::Value;

namespace {

constexpr unsigned char kGuardPattern = 0xA5;
constexpr unsigned char kPoisonPattern = 0xFF;  // NaN in every float dtype

}  // namespace

// Debugging: values become NaN after their lifetime, and the guard bytes after a value must not change.
void Engine::poison_ended(const Schedule& s, const schedule::Lifetimes& lives, int index) {
  if (index < 0) return;
  const auto shared_by_ranks = [&](Memory memory) {
    return (memory == Memory::host_shared && comm_.gather->size() > 1) ||
           (memory == Memory::host_reduced && comm_.reduce->size() > 1);
  };
  bool waited = false;
  for (const int value : lives.ending(index)) {
    if (lives.continues(value)) continue;
    const Value& v = s.values[static_cast<size_t>(value)];
    char* data = base_[static_cast<int>(v.memory)] + v.offset;
    const int64_t guard = plan_.request.guard_bytes;
    // Values that share bytes may differ in size, so only a value that shares none has guard bytes.
    for (int64_t i = 0; i < guard && v.takes_over < 0; ++i)
      if (static_cast<unsigned char>(data[schedule::aligned(v.bytes) + i]) != kGuardPattern)
        throw InternalError(fmt::format("{} was written past its end (byte {} behind it)", v.label, i));
    if (shared_by_ranks(v.memory) && !waited) {
      comm_.debug->barrier()->wait();  // other ranks may still read the value
      waited = true;
    }
    std::memset(data, kPoisonPattern, static_cast<size_t>(v.bytes));
  }
  if (waited) comm_.debug->barrier()->wait();
}

void Engine::set_guards(const Schedule& s, const schedule::Lifetimes& lives, int index) {
  for (const int value : lives.beginning(index)) {
    const Value& v = s.values[static_cast<size_t>(value)];
    if (v.takes_over < 0 && !lives.continues(value))
      std::memset(base_[static_cast<int>(v.memory)] + v.offset + schedule::aligned(v.bytes), kGuardPattern,
                  static_cast<size_t>(schedule::aligned(plan_.request.guard_bytes)));
  }
}

}  // namespace trireme::engine
