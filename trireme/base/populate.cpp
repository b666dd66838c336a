#include "trireme/base/populate.h"

#include <sys/mman.h>

#include <cerrno>

namespace trireme::base {

int populate(std::byte* begin, std::size_t bytes) {
  constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, which older headers lack
  constexpr std::size_t kPage = 4096;
  if (madvise(begin, (bytes + kPage - 1) / kPage * kPage, kPopulateWrite) == 0) return 0;
  if (errno != EINVAL) return errno;
  for (std::byte* p = begin; p < begin + bytes; p += kPage) *static_cast<volatile std::byte*>(p) = *p;
  return 0;
}

}  // namespace trireme::base
