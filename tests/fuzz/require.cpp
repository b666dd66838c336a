#include <cstdio>
#include <cstdlib>

#include "targets.h"

namespace trireme::fuzz {

void require(bool holds, std::string_view rule) {
  if (holds) return;
  std::fprintf(stderr, "broken rule: %.*s\n", static_cast<int>(rule.size()), rule.data());
  std::abort();
}

void require_inside_folder(std::string_view name) {
  require(!name.empty() && name != "." && name != "..", "a file's name is a name");
  require(name.find('/') == std::string_view::npos, "a file's name leads to no other folder");
  require(name.find('\0') == std::string_view::npos, "a file's name is not cut at a zero");
}

}  // namespace trireme::fuzz
