#include "trireme/machine/nvml.h"

#include <fmt/format.h>

#include <vector>

#include "trireme/base/text.h"

namespace trireme::machine {

Nvml::Nvml() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
  ready_ = library_ != nullptr && call<>("nvmlInit_v2");
}

Nvml::~Nvml() {
  if (ready_) call<>("nvmlShutdown");
  if (library_ != nullptr) dlclose(library_);
}

std::string Nvml::driver() const {
  char text[96] = "";
  return call("nvmlSystemGetDriverVersion", text, unsigned{sizeof text}) ? text : "";
}

namespace {

const Nvml& opened() {
  static const auto& nvml = *new Nvml;  // outlives every static destructor
  return nvml;
}

}  // namespace

std::string nvidia_driver() { return opened().ready() ? opened().driver() : ""; }

std::optional<GpuReading> read_gpu(const std::string& bus_id) {
  constexpr unsigned kMultiprocessorClock = 1, kGpuTemperature = 0;
  const Nvml& nvml = opened();
  Nvml::Device device = nullptr;
  if (!nvml.ready() || !nvml.call("nvmlDeviceGetHandleByPciBusId_v2", bus_id.c_str(), &device)) return std::nullopt;
  const auto number = [&](const char* function, auto... which) {
    unsigned value = 0;
    return nvml.call(function, device, which..., &value) ? value : 0;
  };
  Nvml::Memory memory{};
  nvml.call("nvmlDeviceGetMemoryInfo", device, &memory);
  return GpuReading{.memory_used = static_cast<int64_t>(memory.used),
                    .watts = 1e-3 * number("nvmlDeviceGetPowerUsage"),
                    .watts_at_most = 1e-3 * number("nvmlDeviceGetEnforcedPowerLimit"),
                    .megahertz = number("nvmlDeviceGetClockInfo", kMultiprocessorClock),
                    .megahertz_at_most = number("nvmlDeviceGetMaxClockInfo", kMultiprocessorClock),
                    .celsius = number("nvmlDeviceGetTemperature", kGpuTemperature)};
}

std::string text_of(const GpuReading& r) {
  std::vector<std::string> parts;
  const auto add = [&](double value, double at_most, const char* unit) {
    if (value <= 0) return;
    parts.push_back(at_most > 0 ? fmt::format("{:.0f} of {:.0f} {}", value, at_most, unit)
                                : fmt::format("{:.0f} {}", value, unit));
  };
  add(r.watts, r.watts_at_most, "W");
  add(double(r.megahertz), double(r.megahertz_at_most), "MHz");
  add(double(r.celsius), 0, "degrees C");
  return base::join(parts, ", ");
}

}  // namespace trireme::machine
