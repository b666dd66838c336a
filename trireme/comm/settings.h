// Settings of the communication between ranks.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>

#include "trireme/config/declaration.h"

namespace trireme::comm {

enum class Backend { automatic, shm, gloo, mpi, threads, nccl, dry_run };
std::span<const config::Choice<Backend>> choices_of(Backend);

/// How gradients are compressed, as by DDP's communication hooks; bf16 is bf16_compress_hook.
enum class Compression { none, bf16 };
std::span<const config::Choice<Compression>> choices_of(Compression);

struct CommSettings {
  Backend backend = Backend::automatic;
  std::chrono::milliseconds timeout{30'000};
  Compression compression = Compression::none;
  std::optional<bool> tls;  ///< encrypt; empty: only between machines
  bool operator==(const CommSettings&) const = default;
};
config::Section section(CommSettings& settings);

/// Refuses backends that a command cannot compute with: dry_run (for plans) and threads (for your own programs).
void check_computes(const CommSettings& settings, int64_t world_size, config::Problems& problems);

}  // namespace trireme::comm
