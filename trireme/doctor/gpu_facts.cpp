// NVIDIA cards from their driver's library (NVML) if it exists, or else from /proc. AMD cards from /sys, only to report
// that they exist. Nothing here creates a CUDA context.
#include <dlfcn.h>
#include <fmt/format.h>
#include <limits.h>
#include <link.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "trireme/doctor/facts.h"

namespace trireme::doctor {
namespace {

namespace fs = std::filesystem;
using Device = void*;

// As nvml.h declares them; 0 is success.
struct Memory {
  unsigned long long total, free, used;
};

class Nvml {
 public:
  Nvml() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    ready_ = library_ != nullptr && call<>("nvmlInit_v2");
  }
  ~Nvml() {
    if (ready_) call<>("nvmlShutdown");
    if (library_ != nullptr) dlclose(library_);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  bool ready() const { return ready_; }

  /// False if the library has no such function, or the call fails.
  template <typename... Arguments>
  bool call(const char* name, Arguments... arguments) const {
    const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library_, name));
    return function != nullptr && function(arguments...) == 0;
  }

  std::string driver() const {
    char text[96] = "";
    return call("nvmlSystemGetDriverVersion", text, unsigned{sizeof text}) ? text : "";
  }

  std::vector<Gpu> gpus() const {
    std::vector<Gpu> found;
    unsigned count = 0;
    if (!call("nvmlDeviceGetCount_v2", &count)) return found;
    for (unsigned i = 0; i < count; ++i) {
      Device device = nullptr;
      if (call("nvmlDeviceGetHandleByIndex_v2", i, &device)) found.push_back(gpu(device));
    }
    return found;
  }

 private:
  Gpu gpu(Device device) const {
    constexpr unsigned kMostLinks = 18;
    Gpu gpu;
    char name[96] = "";
    if (call("nvmlDeviceGetName", device, name, unsigned{sizeof name})) gpu.name = name;
    Memory memory{};
    if (call("nvmlDeviceGetMemoryInfo", device, &memory)) gpu.memory_bytes = static_cast<int64_t>(memory.total);
    for (unsigned link = 0; link < kMostLinks; ++link) {
      int is_up = 0;
      gpu.nvlinks += call("nvmlDeviceGetNvLinkState", device, link, &is_up) && is_up == 1;
    }
    gpu.pcie = pcie(device, "Curr");
    gpu.pcie_at_most = pcie(device, "Max");
    return gpu;
  }

  std::string pcie(Device device, const char* which) const {
    unsigned generation = 0, width = 0;
    const bool known = call(fmt::format("nvmlDeviceGet{}PcieLinkGeneration", which).c_str(), device, &generation) &&
                       call(fmt::format("nvmlDeviceGet{}PcieLinkWidth", which).c_str(), device, &width);
    return known ? fmt::format("{}.0 x{}", generation, width) : "";
  }

  void* library_;
  bool ready_ = false;
};

std::string first_line_after(const fs::path& path, const std::string& label) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t at = line.find(label);
    if (at == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t", at + label.size());
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

void gather_by_proc(Facts& facts) {
  std::error_code ignored;
  for (const auto& card : fs::directory_iterator("/proc/driver/nvidia/gpus", ignored))
    facts.gpus.push_back({.name = first_line_after(card.path() / "information", "Model:")});
  const std::string version = first_line_after("/proc/driver/nvidia/version", "Kernel Module");
  facts.driver = version.substr(0, version.find("  "));
}

void gather_amd(Facts& facts) {
  std::error_code ignored;
  for (const auto& card : fs::directory_iterator("/sys/class/drm", ignored)) {
    const std::string name = card.path().filename().string();
    if (!name.starts_with("card") || name.find('-') != std::string::npos) continue;  // card0-HDMI-A-1: a connector
    if (first_line_after(card.path() / "device/vendor", "0x1002").empty() &&
        first_line_after(card.path() / "device/uevent", "DRIVER=") != "amdgpu")
      continue;
    const std::string product = first_line_after(card.path() / "device/product_name", "");
    facts.gpus.push_back({.name = product.empty() ? "AMD GPU" : "AMD " + product});
    facts.driver = "amdgpu";
  }
}

// LibTorch's own NCCL is beside its wheel; another is where the loader finds it.
std::string nccl_version() {
  char folder[PATH_MAX] = "";
  void* library = nullptr;
  if (void* torch = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD)) {
    if (dlinfo(torch, RTLD_DI_ORIGIN, folder) == 0)
      library = dlopen(fmt::format("{}/../../nvidia/nccl/lib/libnccl.so.2", folder).c_str(), RTLD_LAZY | RTLD_LOCAL);
    dlclose(torch);
  }
  if (library == nullptr) library = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return "";
  const auto get = reinterpret_cast<int (*)(int*)>(dlsym(library, "ncclGetVersion"));
  int version = 0;  // 22703 is 2.27.3
  const bool known = get != nullptr && get(&version) == 0;
  dlclose(library);
  return known ? fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100) : "";
}

}  // namespace

void gather_gpus(Facts& facts) {
  const Nvml nvml;
  if (nvml.ready()) {
    facts.driver = nvml.driver();
    facts.gpus = nvml.gpus();
  } else {
    gather_by_proc(facts);
  }
  if (facts.gpus.empty()) gather_amd(facts);
  facts.nccl = nccl_version();
}

}  // namespace trireme::doctor
