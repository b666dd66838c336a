#include "trireme/engine/block_io.h"

#include <liburing.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <utility>
#include <vector>

#include "trireme/base/crew.h"

namespace trireme::engine {
namespace {

BlockIo::Faults& io_faults() {
  static BlockIo::Faults faults;
  return faults;
}

BlockIo::Fault io_fault(bool write, const Piece& rest) {
  return io_faults() ? io_faults()(write, rest.offset, rest.bytes) : BlockIo::Fault{};
}

Piece behind(const Piece& piece, int64_t bytes) {
  return {piece.memory + bytes, piece.offset + bytes, piece.bytes - bytes};
}

}  // namespace

void BlockIo::set_faults(Faults faults) { io_faults() = std::move(faults); }

void BlockIo::Free::operator()(io_uring* ring) const {
  io_uring_queue_exit(ring);
  delete ring;
}

BlockIo::BlockIo(int descriptor, int depth, Way way) : descriptor_(descriptor), depth_(depth) {
  if (way == Way::threads) return;
  auto ring = std::make_unique<io_uring>();
  if (io_uring_queue_init(static_cast<unsigned>(depth), ring.get(), 0) != 0) return;
  ring_.reset(ring.release());
  if (!ring_works()) ring_.reset();
}

// The kernel may know rings and not these requests, or forbid the call that starts them.
bool BlockIo::ring_works() {
  io_uring_probe* probe = io_uring_get_probe_ring(ring_.get());
  const bool known = probe != nullptr && io_uring_opcode_supported(probe, IORING_OP_READ) != 0 &&
                     io_uring_opcode_supported(probe, IORING_OP_WRITE) != 0;
  if (probe != nullptr) io_uring_free_probe(probe);
  if (!known) return false;
  io_uring_prep_nop(io_uring_get_sqe(ring_.get()));
  io_uring_cqe* done = nullptr;
  if (io_uring_submit_and_wait(ring_.get(), 1) < 0 || io_uring_peek_cqe(ring_.get(), &done) != 0) return false;
  io_uring_cqe_seen(ring_.get(), done);
  return true;
}

BlockIo::~BlockIo() = default;

std::unique_ptr<PieceError> BlockIo::move(bool write, std::span<const Piece> pieces, const Hooks& hooks) {
  return ring_ ? by_ring(write, pieces, hooks) : by_threads(write, pieces, hooks);
}

std::unique_ptr<PieceError> BlockIo::by_ring(bool write, std::span<const Piece> pieces, const Hooks& hooks) {
  std::unique_ptr<PieceError> error;
  std::vector<Piece> rest(pieces.begin(), pieces.end());  // of each piece, what is not moved yet
  size_t next = 0;
  int under_way = 0;
  bool is_broken = false;  // the ring takes nothing any more
  const auto fail = [&](size_t piece, int code) {
    if (!error) error = std::make_unique<PieceError>(PieceError{pieces[piece].offset, code});
  };
  const auto submit = [&](size_t i) {
    const Fault fault = io_fault(write, rest[i]);
    if (fault.code != 0) return fail(i, fault.code);
    if (is_broken) return fail(i, EIO);
    io_uring_sqe* entry = io_uring_get_sqe(ring_.get());
    const auto bytes = static_cast<unsigned>(std::min(rest[i].bytes, fault.at_most));
    if (write)
      io_uring_prep_write(entry, descriptor_, rest[i].memory, bytes, static_cast<uint64_t>(rest[i].offset));
    else
      io_uring_prep_read(entry, descriptor_, rest[i].memory, bytes, static_cast<uint64_t>(rest[i].offset));
    io_uring_sqe_set_data64(entry, i);
    ++under_way;
  };
  while (under_way > 0 || (next < pieces.size() && !error)) {
    for (; next < pieces.size() && under_way < depth_ && !error; ++next) {
      if (write && hooks.begin) hooks.begin(pieces[next]);
      submit(next);
    }
    if (under_way == 0) break;
    io_uring_cqe* done = nullptr;
    const int answer = is_broken ? io_uring_wait_cqe(ring_.get(), &done) : io_uring_submit_and_wait(ring_.get(), 1);
    if (!is_broken && answer < 0 && answer != -EINTR && answer != -EAGAIN) {
      fail(next > 0 ? next - 1 : 0, -answer);
      under_way -= static_cast<int>(io_uring_sq_ready(ring_.get()));  // never handed over; the rest still ends
      is_broken = true;
    }
    while (io_uring_peek_cqe(ring_.get(), &done) == 0) {
      const auto i = static_cast<size_t>(io_uring_cqe_get_data64(done));
      const int moved = done->res;
      io_uring_cqe_seen(ring_.get(), done);
      --under_way;
      if (moved == -EINTR || moved == -EAGAIN)
        submit(i);
      else if (moved < 0)
        fail(i, -moved);
      else if (moved == 0)
        fail(i, kCutShort);
      else if (rest[i] = behind(rest[i], moved); rest[i].bytes > 0)
        submit(i);
      else if (!write && hooks.end)
        hooks.end(pieces[i]);
    }
  }
  if (is_broken) ring_.reset();  // with what was never handed over; threads move what comes later
  return error;
}

int BlockIo::one(bool write, Piece rest) const {
  while (rest.bytes > 0) {
    const Fault fault = io_fault(write, rest);
    if (fault.code != 0) return fault.code;
    const auto bytes = static_cast<size_t>(std::min(rest.bytes, fault.at_most));
    const ssize_t moved = write ? pwrite(descriptor_, rest.memory, bytes, rest.offset)
                                : pread(descriptor_, rest.memory, bytes, rest.offset);
    if (moved < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (moved < 0) return errno;
    if (moved == 0) return kCutShort;
    rest = behind(rest, moved);
  }
  return 0;
}

std::unique_ptr<PieceError> BlockIo::by_threads(bool write, std::span<const Piece> pieces, const Hooks& hooks) {
  std::unique_ptr<PieceError> error;
  std::mutex mutex;
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  const auto work = [&](size_t) {
    for (size_t i = next++; i < pieces.size() && !failed; i = next++) {
      if (write && hooks.begin) hooks.begin(pieces[i]);
      if (const int code = one(write, pieces[i]); code != 0) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::make_unique<PieceError>(PieceError{pieces[i].offset, code});
        failed = true;
      } else if (!write && hooks.end) {
        hooks.end(pieces[i]);
      }
    }
  };
  const size_t threads = std::min(pieces.size(), static_cast<size_t>(depth_));
  if (threads > 1)
    base::Crew(threads, work).join();
  else
    work(0);
  return error;
}

}  // namespace trireme::engine
