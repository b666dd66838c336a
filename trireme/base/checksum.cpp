#include "trireme/base/checksum.h"

#include <fmt/format.h>
#include <xxhash.h>

#include "trireme/base/error.h"

namespace trireme::base {

uint64_t checksum(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

struct Checksum::State {
  State() : xxh(XXH3_createState()) { check_invariant(xxh != nullptr, "XXH3 has a state"); }
  ~State() { XXH3_freeState(xxh); }
  XXH3_state_t* xxh;
};

Checksum::Checksum() : state_(std::make_unique<State>()) { XXH3_64bits_reset(state_->xxh); }
Checksum::~Checksum() = default;
Checksum::Checksum(Checksum&&) noexcept = default;
Checksum& Checksum::operator=(Checksum&&) noexcept = default;

void Checksum::update(std::span<const std::byte> bytes) { XXH3_64bits_update(state_->xxh, bytes.data(), bytes.size()); }

uint64_t Checksum::value() const { return XXH3_64bits_digest(state_->xxh); }

std::string checksum_text(uint64_t value) { return fmt::format("{:016x}", value); }

}  // namespace trireme::base
