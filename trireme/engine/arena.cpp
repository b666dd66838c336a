#include "trireme/engine/arena.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/populate.h"
#include "trireme/ops/parallel.h"

namespace trireme::engine {

MappedMemory::MappedMemory(int64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  data_ = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data_ == MAP_FAILED)
    throw Error(
        fmt::format("the system has no {} bytes for the arena: {}; try a smaller train.micro_batch_size, "
                    "--recompute full or more ranks",
                    bytes, std::strerror(errno)));
  madvise(data_, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  if (const int error = base::populate(static_cast<std::byte*>(data_), static_cast<size_t>(bytes)); error != 0) {
    munmap(data_, static_cast<size_t>(bytes));
    throw Error(fmt::format("the system has no {} bytes for the arena: {}", bytes, std::strerror(error)));
  }
}

MappedMemory::~MappedMemory() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
}

MappedMemory::MappedMemory(MappedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

MappedMemory& MappedMemory::operator=(MappedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void copy_on_all_threads(char* to, const void* from, int64_t bytes, CopyPiece piece) {
  constexpr int64_t kPiece = 1 << 20, kLeastPieces = 4;  // that are worth a thread
  ops::parallel_rows((bytes + kPiece - 1) / kPiece, kLeastPieces, [&](int64_t begin, int64_t end) {
    const int64_t at = begin * kPiece;
    piece(to + at, static_cast<const char*>(from) + at, std::min(end * kPiece, bytes) - at);
  });
}

}  // namespace trireme::engine
