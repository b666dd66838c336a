#include <fmt/format.h>

#include <algorithm>
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

int64_t align(int64_t bytes) {
  return (bytes + schedule::kValueAlignment - 1) / schedule::kValueAlignment * schedule::kValueAlignment;
}

bool taken_over(const Schedule& s, const Value& v) {
  return std::any_of(s.values.begin(), s.values.end(),
                     [&](const Value& other) { return other.takes_over >= 0 && &s.values[other.takes_over] == &v; });
}

}  // namespace

// Debugging: what a list should not read any more becomes NaN, and what lies behind a value must not change.
void Engine::poison_ended(const Schedule& s, int index) {
  if (index < 0) return;
  const bool shared_by_ranks = comm_.gather->size() > 1;
  bool waited = false;
  for (const Value& v : s.values) {
    if (v.persistent || v.last != index) continue;
    const bool continues = taken_over(s, v);
    char* data = base_[static_cast<int>(v.memory)] + v.offset;
    const int64_t guard = plan_.request.guard_bytes;
    // Values that share their bytes may differ in size: only those alone have a guard of their own.
    for (int64_t i = 0; i < guard && !continues && v.takes_over < 0; ++i)
      if (static_cast<unsigned char>(data[align(v.bytes) + i]) != kGuardPattern)
        throw InternalError(fmt::format("{} was written past its end (byte {} behind it)", v.label, i));
    if (continues) continue;
    if (v.memory == Memory::host_shared && shared_by_ranks && !waited) {
      comm_.debug->barrier()->wait();  // the others may still read what this list has finished with
      waited = true;
    }
    std::memset(data, kPoisonPattern, static_cast<size_t>(v.bytes));
  }
  if (waited) comm_.debug->barrier()->wait();
}

void Engine::set_guards(const Schedule& s, int index) {
  for (const Value& v : s.values)
    if (!v.persistent && v.first == index && v.takes_over < 0 && !taken_over(s, v))
      std::memset(base_[static_cast<int>(v.memory)] + v.offset + align(v.bytes), kGuardPattern,
                  static_cast<size_t>(align(plan_.request.guard_bytes)));
}

}  // namespace trireme::engine
