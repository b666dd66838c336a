#include "trireme/checkpoint/window_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/checkpoint/disk.h"

namespace trireme::checkpoint {
namespace {

/// Opens the same file again without the page cache, even if it was renamed; empty if that is impossible.
base::FileDescriptor reopen_direct(const base::FileDescriptor& file) try {
  return open_direct(fmt::format("/proc/self/fd/{}", file.get()), O_RDONLY);
} catch (const base::FileError&) {
  return {};
}

}  // namespace

WindowReader::WindowReader(std::vector<Window> windows, bool direct)
    : windows_(std::move(windows)), direct_(direct), thread_([this](const std::stop_token& stop) { read_all(stop); }) {}

WindowReader::~WindowReader() {
  thread_.request_stop();
  for (Slot& slot : slots_) slot.empty.try_acquire(), slot.empty.release();
}

std::span<const std::byte> WindowReader::next() {
  check_invariant(taken_ < windows_.size(), "no more windows are taken than there are");
  if (taken_ > 0) slots_[(taken_ - 1) % slots_.size()].empty.release();
  const Window& window = windows_[taken_];
  Slot& slot = slots_[taken_++ % slots_.size()];
  slot.full.acquire();
  if (slot.failure) std::rethrow_exception(slot.failure);
  return {slot.buffer.data(), static_cast<size_t>(window.end - window.begin)};
}

void WindowReader::read_all(const std::stop_token& stop) {
  for (size_t i = 0; i < windows_.size(); ++i) {
    Slot& slot = slots_[i % slots_.size()];
    slot.empty.acquire();
    if (stop.stop_requested()) return;
    try {
      fill(windows_[i], slot.buffer.data());
    } catch (...) {
      slot.failure = std::current_exception();
    }
    slot.full.release();
    if (slot.failure) return;
  }
}

void WindowReader::fill(const Window& window, std::byte* to) {
  if (file_ != window.file) {
    direct_file_ = direct_ ? reopen_direct(*window.file) : base::FileDescriptor();
    file_ = window.file;
  }
  const auto wanted = static_cast<size_t>(window.end - window.begin);
  size_t have = 0;
  if (direct_file_.get() >= 0) {
    const size_t whole_pages = (wanted + kPageBytes - 1) / kPageBytes * kPageBytes;  // may reach past the file's end
    const ssize_t got = ::pread(direct_file_.get(), to, whole_pages, window.begin);
    if (got < 0 && errno == EINVAL) direct_file_ = {};  // an alignment beyond a page
    if (got > 0) have = std::min(static_cast<size_t>(got), wanted);
  }
  // Reads what direct access did not, usually nothing. Disk errors are thrown here.
  base::read_at(*file_, {to + have, wanted - have}, window.begin + static_cast<int64_t>(have), window.path);
}

}  // namespace trireme::checkpoint
