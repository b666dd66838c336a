#include <string>

#include "targets.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/manifest.h"

namespace trireme::fuzz {

/// Our manifest; a fuzzer does not find the checksum of its own, so that is tried as it is and put right.
void fuzz_manifest(std::string_view bytes) {
  checkpoint::Manifest manifest;
  try {
    manifest = checkpoint::parse_manifest(std::string(bytes), "manifest.json");
  } catch (const CheckpointError&) {
    manifest = checkpoint::parse_manifest(checkpoint::with_own_checksum(std::string(bytes)), "manifest.json");
  }
  for (const auto& [name, file] : manifest.files) {
    require_inside_folder(name);
    require(static_cast<int64_t>(file.blocks.size()) == checkpoint::num_blocks(file.bytes), "blocks cover their file");
  }
}

}  // namespace trireme::fuzz
