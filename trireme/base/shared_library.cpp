#include "trireme/base/shared_library.h"

namespace trireme::base {

std::filesystem::path library_path(const std::string& library) {
  std::error_code ignored;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const auto& candidate : {folder / library, folder / ".." / "lib" / library})
    if (std::filesystem::exists(candidate, ignored)) return candidate;
  return library;
}

}  // namespace trireme::base
