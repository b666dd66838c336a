#include "trireme/base/checksum.h"

#include <fmt/format.h>
#include <xxhash.h>

#include "trireme/base/error.h"

namespace trireme::base {

uint64_t checksum(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

void Checksum::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

Checksum::Checksum() : state_(XXH3_createState()) {
  check_invariant(state_ != nullptr, "XXH3 has a state");
  XXH3_64bits_reset(state_.get());
}

void Checksum::update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());
}

uint64_t Checksum::value() const { return XXH3_64bits_digest(state_.get()); }

std::string checksum_text(uint64_t value) { return fmt::format("{:016x}", value); }

}  // namespace trireme::base
