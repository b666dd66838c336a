#include "trireme/engine/offload_room.h"

#include <fmt/format.h>
#include <sys/statfs.h>

#include <cerrno>

#include "trireme/base/files.h"
#include "trireme/base/text.h"

namespace trireme::engine {

void require_offload_room(const std::filesystem::path& folder, int64_t bytes) {
  struct statfs about = {};
  if (statfs(folder.c_str(), &about) != 0) return;  // validate_places refuses the folder
  if (bytes > static_cast<int64_t>(about.f_bfree) * static_cast<int64_t>(about.f_bsize))
    throw_no_offload_room(folder, bytes, ENOSPC);
}

void throw_no_offload_room(const std::filesystem::path& folder, int64_t bytes, int code) {
  struct statfs about = {};
  statfs(folder.c_str(), &about);
  throw base::FileError(
      fmt::format("cannot offload {} to {}: it has {} left; set offload.path to a larger disk, or offload less",
                  base::human_bytes(bytes), folder.string(),
                  base::human_bytes(static_cast<int64_t>(about.f_bavail) * static_cast<int64_t>(about.f_bsize))),
      folder, code);
}

}  // namespace trireme::engine
