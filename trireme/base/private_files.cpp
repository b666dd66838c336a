#include "trireme/base/private_files.h"

#include <sys/stat.h>

#include <vector>

#include "trireme/base/files.h"

namespace trireme::base {

void make_files_as_private_as(std::span<const std::filesystem::path> sources) {
  std::vector<std::filesystem::path> files;
  for (const std::filesystem::path& source : sources) {
    files.push_back(source);
    std::error_code error;
    for (std::filesystem::directory_iterator entry(source, error), end; !error && entry != end; entry.increment(error))
      if (entry->is_regular_file(error)) files.push_back(entry->path());
  }
  const unsigned readable = readable_as(files);
  const unsigned mask = ((readable & 0040U) == 0 ? 0070U : 0U) | ((readable & 0004U) == 0 ? 0007U : 0U);
  ::umask(::umask(0077) | mask);
}

}  // namespace trireme::base
