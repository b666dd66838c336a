// The NVIDIA driver's management library (NVML), opened at run time: what cards there are and what they do at the
// moment. Nothing here creates a CUDA context.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <optional>
#include <string>

namespace trireme::machine {

class Nvml {
 public:
  using Device = void*;

  Nvml();
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// Whether the library exists and has found a driver.
  bool ready() const { return ready_; }

  /// A function of nvml.h. False if the library has no such function, or the call fails.
  template <typename... Arguments>
  bool call(const char* name, Arguments... arguments) const {
    const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library_, name));
    return function != nullptr && function(arguments...) == 0;
  }

  /// "580.159.04"; empty if the library does not say.
  std::string driver() const;

  /// As nvml.h declares it.
  struct Memory {
    unsigned long long total, free, used;
  };

 private:
  void* library_;
  bool ready_ = false;
};

/// What a card does at the moment; 0: the driver does not say.
struct GpuReading {
  int64_t memory_used = 0;  ///< bytes, of all processes
  double watts = 0, watts_at_most = 0;
  int64_t megahertz = 0, megahertz_at_most = 0;  ///< of the multiprocessors
  int64_t celsius = 0;
};

/// @param bus_id   as CUDA names a card: "0000:1B:00.0"
/// Cost      some microseconds; the first call opens the library
std::optional<GpuReading> read_gpu(const std::string& bus_id);

/// The driver's version; empty without one.
std::string nvidia_driver();

/// "612 of 700 W, 1,755 of 1,980 MHz, 58 degrees C", without what is not known.
std::string text_of(const GpuReading& reading);

}  // namespace trireme::machine
