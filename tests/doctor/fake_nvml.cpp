// The library of NVIDIA's driver as far as the doctor and machine::read_gpu() ask it: two cards with 18 NVLinks, the
// second in a slot of half the width. Signatures as in nvml.h.
#include <cstdint>
#include <cstdio>
#include <cstring>

extern "C" {

struct Memory {
  unsigned long long total, free, used;
};
using Device = void*;

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlSystemGetDriverVersion(char* text, unsigned size) { return std::snprintf(text, size, "570.1") < 0; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
  *device = reinterpret_cast<Device>(std::uintptr_t{index} + 1);
  return index < 2 ? 0 : 2;
}
int nvmlDeviceGetName(Device, char* text, unsigned size) { return std::snprintf(text, size, "NVIDIA H100") < 0; }
int nvmlDeviceGetMemoryInfo(Device, Memory* memory) {
  memory->total = 80ULL << 30;
  memory->used = 33ULL << 30;
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, Device* device) {
  *device = reinterpret_cast<Device>(std::uintptr_t{1});
  return std::strcmp(bus_id, "0000:1B:00.0") == 0 ? 0 : 6;
}
int nvmlDeviceGetPowerUsage(Device, unsigned* milliwatts) {
  *milliwatts = 612'345;
  return 0;
}
int nvmlDeviceGetEnforcedPowerLimit(Device, unsigned* milliwatts) {
  *milliwatts = 700'000;
  return 0;
}
int nvmlDeviceGetClockInfo(Device, unsigned which, unsigned* megahertz) {
  *megahertz = 1755;
  return which == 1 ? 0 : 2;
}
int nvmlDeviceGetMaxClockInfo(Device, unsigned, unsigned*) { return 3; }  // not supported
int nvmlDeviceGetTemperature(Device, unsigned sensor, unsigned* celsius) {
  *celsius = 58;
  return sensor == 0 ? 0 : 2;
}
int nvmlDeviceGetNvLinkState(Device, unsigned link, int* is_up) {
  *is_up = 1;
  return link < 18 ? 0 : 2;
}
int nvmlDeviceGetCurrPcieLinkGeneration(Device, unsigned* generation) {
  *generation = 1;  // as an idle card says
  return 0;
}
int nvmlDeviceGetMaxPcieLinkGeneration(Device, unsigned* generation) {
  *generation = 5;
  return 0;
}
int nvmlDeviceGetCurrPcieLinkWidth(Device device, unsigned* width) {
  *width = reinterpret_cast<std::uintptr_t>(device) == 2 ? 8 : 16;
  return 0;
}
int nvmlDeviceGetMaxPcieLinkWidth(Device, unsigned* width) {
  *width = 16;
  return 0;
}
}
