// The C++ side of safetensors_judge.py.
//   judge_helper save DIR     saves the sample model below DIR, in small files, and prints the folder
//   judge_helper dump FILE... prints file, name, dtype, shape and bytes (hex) of every tensor of safetensors files
#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <span>
#include <string>

#include "fixtures.h"
#include "trireme/base/files.h"
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
    const std::string file = trireme::base::read_file(argv[i]);
    const auto read = [&](int64_t offset, std::span<std::byte> target) {
      std::memcpy(target.data(), file.data() + offset, target.size());
    };
    const auto header = checkpoint::read_header(static_cast<int64_t>(file.size()), read, argv[i]);
    for (const auto& [name, entry] : header.tensors) {
      std::string hex;
      for (int64_t at = entry.begin; at < entry.end; ++at)
        hex += fmt::format("{:02x}", static_cast<uint8_t>(file[static_cast<size_t>(at)]));
      fmt::print("{}\t{}\t{}\t{}\t{}\n", argv[i], name, checkpoint::dtype_name(entry.dtype),
                 checkpoint::shape_text(entry.shape), hex);
    }
  }
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
