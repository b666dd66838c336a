#include "trireme/engine/offload_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "trireme/base/checksum.h"
#include "trireme/base/error.h"
#include "trireme/engine/offload_room.h"
#include "trireme/schedule/settings.h"

namespace trireme::engine {
namespace {

// A file without a name; on file systems that have no such files, one whose name is removed at once.
int open_nameless(const std::filesystem::path& folder, int flags) {
  const int file = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
  if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)) return file;
  std::string name = (folder / ".offload-XXXXXX").string();
  const int named = mkostemp(name.data(), O_CLOEXEC | flags);
  if (named >= 0) unlink(name.c_str());
  return named;
}

std::vector<Piece> pieces_of(char* memory, int64_t offset, int64_t bytes) {
  std::vector<Piece> pieces;
  for (int64_t at = 0; at < bytes; at += kOffloadBlock)
    pieces.push_back({memory == nullptr ? nullptr : memory + at, offset + at, std::min(kOffloadBlock, bytes - at)});
  return pieces;
}

uint64_t checksum_of(const Piece& p) {
  return base::checksum({reinterpret_cast<const std::byte*>(p.memory), static_cast<size_t>(p.bytes)});
}

}  // namespace

OffloadFile::OffloadFile(const std::filesystem::path& folder, int64_t bytes) : folder_(folder), bytes_(bytes) {
  if (const auto refusal = schedule::check_offload_folder(folder.string()))
    throw UsageError(refusal->headline + "; " + refusal->hint);
  int file = open_nameless(folder, O_DIRECT);
  if (file < 0 && errno == EINVAL) file = open_nameless(folder, 0);  // this file system always uses the cache
  if (file < 0) base::throw_file_error("offload to", folder, errno);
  file_ = base::FileDescriptor(file);
  cached_ = base::FileDescriptor(open(fmt::format("/proc/self/fd/{}", file).c_str(), O_RDWR | O_CLOEXEC));
  if (cached_.get() < 0) base::throw_file_error("open the offload file in", folder, errno);
  // Where the file system has no such call (NFS before 4.2), the C library writes a byte to each block, which O_DIRECT
  // refuses.
  if (const int code = base::reserve_bytes(cached_.get(), bytes); code != 0) {
    if (code != ENOSPC && code != EDQUOT && code != EFBIG) base::throw_file_error("offload to", folder, code);
    throw_no_offload_room(folder, bytes, code);
  }
  void* data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (data == MAP_FAILED) base::throw_file_error("map the offload file in", folder, errno);
  data_ = static_cast<char*>(data);
}

OffloadFile::~OffloadFile() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
}

void OffloadFile::fail(const char* verb, const std::string& what, const PieceError& error) const {
  const int code = error.code == kCutShort ? EIO : error.code;
  throw base::FileError(
      fmt::format("cannot {} {} in the offload file of {}, at byte {}: {}; checkpoints are as they were, continue with "
                  "--resume on a disk that works",
                  verb, what, folder_.string(), error.offset,
                  error.code == kCutShort ? "the file ends there" : std::strerror(code)),
      folder_, code);
}

void OffloadFile::fail_damaged(const std::string& what, int64_t offset) const {
  throw base::FileError(
      fmt::format("the offload file of {} has other bytes than were written at byte {}, in {}: the disk is damaged; "
                  "checkpoints are as they were, continue with --resume on a disk that works",
                  folder_.string(), offset, what),
      folder_, EIO);
}

bool OffloadFile::is_as_written(const Piece& piece) {
  const uint64_t found = checksum_of(piece);
  const std::lock_guard lock(mutex_);
  const auto known = checksums_.find(piece.offset);
  return known == checksums_.end() || known->second == found;
}

void OffloadFile::read(BlockIo& io, char* to, int64_t offset, int64_t bytes, const std::string& what) {
  std::atomic<int64_t> damaged{-1};
  const auto check = [&](const Piece& p) {
    if (!is_as_written(p)) damaged = p.offset;
  };
  if (const auto error = io.move(false, pieces_of(to, offset, bytes), {.begin = {}, .end = check}))
    fail("read", what, *error);
  if (damaged >= 0) fail_damaged(what, damaged);
}

void OffloadFile::verify(int64_t offset, int64_t bytes, const std::string& what) {
  std::vector<char> block(static_cast<size_t>(std::min(kOffloadBlock, bytes)));
  BlockIo io(cached_.get(), 1, BlockIo::Way::threads);
  for (Piece p : pieces_of(nullptr, offset, bytes)) {
    p.memory = block.data();
    if (const auto error = io.move(false, {&p, 1}, {})) fail("read", what, *error);
    if (!is_as_written(p)) fail_damaged(what, p.offset);
  }
}

void OffloadFile::write(BlockIo& io, const char* from, int64_t offset, int64_t bytes, const std::string& what) {
  const auto remember = [&](const Piece& p) {
    const uint64_t sum = checksum_of(p);
    const std::lock_guard lock(mutex_);
    checksums_[p.offset] = sum;
  };
  if (const auto error =
          io.move(true, pieces_of(const_cast<char*>(from), offset, bytes), {.begin = remember, .end = {}}))
    fail("write", what, *error);
}

void OffloadFile::seal(int64_t offset, int64_t bytes) {
  for (const Piece& p : pieces_of(data_ + offset, offset, bytes)) {
    const uint64_t sum = checksum_of(p);
    const std::lock_guard lock(mutex_);
    checksums_[p.offset] = sum;
  }
}

void OffloadFile::leave() {
  madvise(data_, static_cast<size_t>(bytes_), MADV_DONTNEED);
  posix_fadvise(file_.get(), 0, bytes_, POSIX_FADV_DONTNEED);
}

}  // namespace trireme::engine
