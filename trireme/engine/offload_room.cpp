#include "trireme/engine/offload_room.h"

#include <fmt/format.h>

#include <cerrno>

#include "trireme/base/files.h"
#include "trireme/base/text.h"

namespace trireme::engine {

void require_offload_room(const std::filesystem::path& folder, int64_t bytes) {
  if (bytes > base::free_disk_bytes(folder)) throw_no_offload_room(folder, bytes, ENOSPC);
}

void throw_no_offload_room(const std::filesystem::path& folder, int64_t bytes, int code) {
  throw base::FileError(
      fmt::format("cannot offload {} to {}: it has {} left; set offload.path to a larger disk, or offload less",
                  base::human_bytes(bytes), folder.string(), base::human_bytes(base::free_disk_bytes(folder))),
      folder, code);
}

}  // namespace trireme::engine
