// The C++ side of safetensors_judge.py.
//   judge_helper save DIR     saves the sample model below DIR, in small files, and prints the folder
//   judge_helper dump FILE... prints file, name, dtype, shape and bytes (hex) of every tensor of safetensors files
#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "fixtures.h"
#include "trireme/checkpoint/safetensors.h"

namespace checkpoint = trireme::checkpoint;

int main(int argc, char** argv) try {
  if (argc < 3) return 2;
  if (std::string(argv[1]) == "save") {
    const auto path = checkpoint::save_sample(
        argv[2], 800, 3, 40, [](int, checkpoint::SaveRequest& request) { request.max_shard_bytes = 50'000; });
    fmt::print("{}\n", path.string());
    return 0;
  }
  for (int i = 2; i < argc; ++i) {
    const checkpoint::SafetensorsFile file(argv[i]);
    for (const auto& [name, entry] : file.header().tensors) {
      std::string hex;
      for (const std::byte byte : file.bytes(name)) hex += fmt::format("{:02x}", static_cast<int>(byte));
      fmt::print("{}\t{}\t{}\t{}\t{}\n", argv[i], name, checkpoint::dtype_name(entry.dtype),
                 checkpoint::shape_text(entry.shape), hex);
    }
  }
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
