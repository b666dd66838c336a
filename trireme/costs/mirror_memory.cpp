#include "trireme/costs/mirror_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/text.h"

namespace trireme::costs {
namespace {

constexpr int64_t kPiece = int64_t{32} << 20;

}  // namespace

void MirrorMemory::refuse(int64_t bytes) {
  throw Error(fmt::format("cannot set {} of address space apart, which a prediction needs: {}",
                          base::human_bytes(bytes), std::strerror(errno)));
}

MirrorMemory::MirrorMemory(int64_t bytes) : bytes_((bytes + kPiece - 1) / kPiece * kPiece) {
  const base::FileDescriptor piece(memfd_create("trireme-mirror", MFD_CLOEXEC));
  if (piece.get() < 0 || ftruncate(piece.get(), kPiece) != 0) refuse(bytes_);
  void* const space =
      mmap(nullptr, static_cast<size_t>(bytes_), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) refuse(bytes_);
  data_ = static_cast<char*>(space);
  for (int64_t at = 0; at < bytes_; at += kPiece)
    if (mmap(data_ + at, kPiece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, piece.get(), 0) == MAP_FAILED) {
      munmap(data_, static_cast<size_t>(bytes_));
      refuse(bytes_);
    }
}

MirrorMemory::~MirrorMemory() { munmap(data_, static_cast<size_t>(bytes_)); }

}  // namespace trireme::costs
