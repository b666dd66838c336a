#include "trireme/base/made_folders.h"

#include <system_error>

#include "trireme/base/files.h"

namespace trireme::base {

MadeFolders::~MadeFolders() {
  std::error_code ignored;
  for (const std::filesystem::path& folder : innermost_first_) std::filesystem::remove(folder, ignored);
}

void MadeFolders::make(const std::filesystem::path& folder) {
  if (std::filesystem::exists(folder)) return;
  make(parent_of(folder));
  if (std::filesystem::create_directory(folder)) innermost_first_.push_front(folder);
}

}  // namespace trireme::base
