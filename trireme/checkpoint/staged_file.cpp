#include "trireme/checkpoint/staged_file.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/checkpoint/disk.h"

namespace trireme::checkpoint {
namespace {

int64_t up(int64_t position) { return (position + kPageBytes - 1) / kPageBytes * kPageBytes; }
int64_t down(int64_t position) { return position / kPageBytes * kPageBytes; }

}  // namespace

StageBuffer::StageBuffer() : bytes_(static_cast<std::byte*>(std::aligned_alloc(kPageBytes, kBytes))) {
  if (!bytes_) throw std::bad_alloc();
}

void StageBuffer::Free::operator()(std::byte* bytes) const { std::free(bytes); }

StagedFile::StagedFile(base::FileDescriptor file, std::filesystem::path path, StageBuffer& buffer, bool direct)
    : file_(std::move(file)), path_(std::move(path)), buffer_(buffer) {
  if (direct) direct_ = open_direct(path_, O_WRONLY);
}

std::span<std::byte> StagedFile::room(int64_t position, int64_t count) {
  if (position != end_ || position % StageBuffer::kBytes == 0) {
    write_out();
    begin_ = position;
  }
  end_ = position + count;
  const int64_t at = position % StageBuffer::kBytes;
  check_invariant(at + count <= StageBuffer::kBytes, "a piece of a file lies in one buffer");
  return {buffer_.data() + at, static_cast<size_t>(count)};
}

void StagedFile::write_out() {
  const auto put = [&](const base::FileDescriptor& file, int64_t begin, int64_t end) {
    if (begin >= end) return;
    const std::byte* from = buffer_.data() + begin % StageBuffer::kBytes;
    base::write_at(file, {from, static_cast<size_t>(end - begin)}, begin, path_);
  };
  const int64_t begin = std::exchange(begin_, end_), first = up(begin), last = down(end_);
  if (direct_.get() >= 0 && first < last) try {
      put(direct_, first, last);
      put(file_, begin, first);
      put(file_, last, end_);
      return;
    } catch (const base::FileError& error) {
      if (error.code != EINVAL) throw;
      direct_ = {};  // the file system wants an alignment beyond a page, or no direct access any more
    }
  put(file_, begin, end_);
  start_writing_out(file_, begin, end_);
}

void StagedFile::flush() {
  write_out();
  checkpoint::flush(file_, path_);
}

}  // namespace trireme::checkpoint
