#include "trireme/base/named_file.h"

#include <system_error>

#include "trireme/base/files.h"

namespace trireme::base {

std::filesystem::path named_file(const std::filesystem::path& path) {
  constexpr int kMostLinks = 40;  // as many as the kernel follows
  std::filesystem::path file = path;
  std::error_code error;
  for (int link = 0; link < kMostLinks && std::filesystem::is_symlink(file, error); ++link) {
    if (file.string().starts_with("/proc/")) break;  // an open file, such as standard output
    const std::filesystem::path target = std::filesystem::read_symlink(file, error);
    if (error) return path;
    file = file.parent_path() / target;  // an absolute target replaces the folder
  }
  return file;
}

void write_named_file(const std::filesystem::path& path, std::string_view contents) {
  write_file_atomic(named_file(path), contents);
}

}  // namespace trireme::base
