// Hardware: what a machine can do, as data. The files of known GPUs are in configs/hardware and in the program;
// `trireme bench calibrate` writes one for this machine, with what was measured.
#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trireme/config/declaration.h"

namespace trireme::costs {

/// Peaks by number format, dense: with float32 sums, without structured sparsity.
struct Peaks {
  double fp64 = 0, fp32 = 0, tf32 = 0, fp16 = 0, bf16 = 0, fp8 = 0;  ///< TFLOP/s; 0: it has no such units
};

/// What operations reach of the peaks.
struct Shares {
  double product = 0.75;  ///< of the peak, by large products
  double product_half = 128;  ///< rows or columns at which a product reaches half of this
  double attention = 0.4;  ///< of the peak
  double memory = 0.8;  ///< of the memory's rate, by operations that move bytes
};

/// A connection between two devices.
struct Link {
  double rate = 0;  ///< GB/s a device sends while it receives as much
  double latency = 0;  ///< microseconds of one message
  double share = 0.8;  ///< of the rate, by large collectives
};

/// What an operation took here: "product_nt bf16 1x2 512 1024 256 1.2e-05", that is its name, its dtype, ranks x
/// threads that were busy, m, n and k (ops/announce.h), and seconds.
struct MeasuredOperation {
  std::string name;
  at::ScalarType dtype;
  int64_t ranks, threads, m, n, k;
  double seconds;
};

/// What a collective took here: "all_gather 2 4096 2.1e-06", that is its name, ranks, bytes and seconds; the shortest,
/// for what ranks wait for each other. "move" is
/// all that ranks read and wrote for each other in a training step (moved_bytes), on the cores that compute.
struct MeasuredCollective {
  std::string name;
  int64_t ranks, bytes;
  double seconds;
};

struct Hardware {
  std::string name;  ///< "H100"
  std::string about;  ///< "NVIDIA H100 SXM5, 80 GB"
  double memory = 0;  ///< GB (1e9 bytes) of a device
  double reserved = 0;  ///< GB of it that the driver, the context and libraries take
  double memory_rate = 0;  ///< GB/s
  double launch = 0;  ///< microseconds from one operation's end to the next one's start
  Peaks peak;
  Shares share;
  int64_t devices = 8;  ///< of a machine
  Link inside, between;  ///< between devices of one machine, and of two machines
  double host_memory = 0;  ///< GB of a machine
  double host_rate = 0;  ///< GB/s between a device and its machine's memory
  double disk_rate = 0;  ///< GB/s that a machine reads and writes at once, past the system's cache
  double disk_read_rate = 0, disk_write_rate = 0;  ///< in one direction alone; 0: the same rate
  double disk_work = 0;  ///< seconds of a core for a GB of it
  double price = 0;  ///< of a device and hour, an example
  std::string currency = "USD";
  std::string price_date;
  bool has_kernels = true;  ///< Trireme runs there; false: it only plans
  bool shares_cores = false;  ///< collectives are moved by the cores that compute: they hide behind nothing
  std::vector<std::string> operations, collectives;  ///< measured, as text

  std::vector<MeasuredOperation> measured_operations;
  std::vector<MeasuredCollective> measured_collectives;
  std::filesystem::path path;  ///< of the file; empty: one of the program's own

  /// FLOP/s of a dtype; of fp8 with `float8`. Without such units those of a wider format, or 0 where there is none.
  double peak_flops(at::ScalarType dtype, bool float8 = false) const;
};

/// "bf16", "fp32", "fp64", "fp16"; "bytes" for others.
const char* dtype_name(at::ScalarType dtype);

/// Why no run computes in these formats there; empty: nothing speaks against it.
std::string lacking_format(const Hardware& hardware, at::ScalarType compute, bool float8);

/// The keys of a hardware file.
config::Section section(Hardware& hardware);

/// "a100-80", "h100", ...: hardware that the program knows.
std::vector<std::string> hardware_names();

/// The hardware of that name, or of the file at that path. "this" and "this-gpu" are the files that `bench
/// calibrate` wrote.
///
/// Errors    UsageError naming the file, its line and the rule; the known names
Hardware read_hardware(const std::string& name_or_path);

/// The text of a hardware file.
std::string hardware_yaml(const Hardware& hardware);

/// Where `bench calibrate` writes the file of "this" machine's processors (hardware.yaml) or GPU ("this-gpu",
/// gpu.yaml): in $XDG_CONFIG_HOME/trireme, or in ~/.config/trireme.
std::filesystem::path hardware_path(const std::string& name);

/// The program's own hardware that a device's name contains: "NVIDIA A100-SXM4-80GB" is A100-80.
std::optional<Hardware> hardware_of_device(const std::string& device_name);

/// "8x8xH100": machines x devices x name; "8xH100" or "H100".
struct Cluster {
  int64_t machines = 1;
  int64_t devices = 1;  ///< of a machine
  Hardware hardware;
  int64_t ranks() const { return machines * devices; }
};
/// Errors    UsageError: a count that is no positive number, no hardware, several kinds of it, unknown hardware
Cluster parse_cluster(const std::string& text);

}  // namespace trireme::costs
