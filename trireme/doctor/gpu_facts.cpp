// NVIDIA cards from their driver's library (NVML) if it exists, or else from /proc. AMD cards from /sys, only to report
// that they exist. Nothing here creates a CUDA context.
#include <dlfcn.h>
#include <fmt/format.h>
#include <limits.h>
#include <link.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "trireme/doctor/facts.h"
#include "trireme/machine/nvml.h"

namespace trireme::doctor {
namespace {

namespace fs = std::filesystem;
using machine::Nvml;

std::string pcie(const Nvml& nvml, Nvml::Device device, const char* which) {
  unsigned generation = 0, width = 0;
  const bool known = nvml.call(fmt::format("nvmlDeviceGet{}PcieLinkGeneration", which).c_str(), device, &generation) &&
                     nvml.call(fmt::format("nvmlDeviceGet{}PcieLinkWidth", which).c_str(), device, &width);
  return known ? fmt::format("{}.0 x{}", generation, width) : "";
}

Gpu gpu_of(const Nvml& nvml, Nvml::Device device) {
  constexpr unsigned kMostLinks = 18;
  Gpu gpu;
  char name[96] = "";
  if (nvml.call("nvmlDeviceGetName", device, name, unsigned{sizeof name})) gpu.name = name;
  Nvml::Memory memory{};
  if (nvml.call("nvmlDeviceGetMemoryInfo", device, &memory)) gpu.memory_bytes = static_cast<int64_t>(memory.total);
  for (unsigned link = 0; link < kMostLinks; ++link) {
    int is_up = 0;
    gpu.nvlinks += nvml.call("nvmlDeviceGetNvLinkState", device, link, &is_up) && is_up == 1;
  }
  gpu.pcie = pcie(nvml, device, "Curr");
  gpu.pcie_at_most = pcie(nvml, device, "Max");
  return gpu;
}

std::vector<Gpu> gpus_of(const Nvml& nvml) {
  std::vector<Gpu> found;
  unsigned count = 0;
  if (!nvml.call("nvmlDeviceGetCount_v2", &count)) return found;
  for (unsigned i = 0; i < count; ++i) {
    Nvml::Device device = nullptr;
    if (nvml.call("nvmlDeviceGetHandleByIndex_v2", i, &device)) found.push_back(gpu_of(nvml, device));
  }
  return found;
}

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
    facts.gpus = gpus_of(nvml);
  } else {
    gather_by_proc(facts);
  }
  if (facts.gpus.empty()) gather_amd(facts);
  facts.nccl = nccl_version();
}

}  // namespace trireme::doctor
