// The tiers: host memory and a file on disk, and the transfers to and from them. Each direction of each tier has a
// thread, or a stream of the GPU, which moves values in the order of the list while the rank computes.
#include <cstring>
#include <tuple>
#include <vector>

#include "trireme/engine/engine.h"
#include "trireme/ops/cuda/kernels.h"

namespace trireme::engine {

using schedule::ActionKind;
using schedule::Memory;

void Engine::allocate_tiers() {
  if (const int64_t bytes = plan_.arena.of(Memory::host); bytes > 0) {
    host_memory_ = MappedMemory(bytes);
    if (on_gpu()) page_lock_ = PageLock(host_memory_);
    base_[static_cast<int>(Memory::host)] = static_cast<char*>(host_memory_.data());
  }
  if (const int64_t bytes = plan_.arena.of(Memory::disk); bytes > 0) {
    file_ = std::make_unique<OffloadFile>(options_.offload_path, bytes);
    base_[static_cast<int>(Memory::disk)] = file_->data();
  }
}

void Engine::bind_transfer(Bound& b, const schedule::Schedule& s, const schedule::Action& a) const {
  const bool fetch = a.kind == ActionKind::fetch;
  const schedule::Value& home = s.values[a.owner];
  const schedule::Value& copy = s.values[a.uses[fetch ? 1 : 0].value];
  b.move = {base_[static_cast<int>(copy.memory)] + copy.offset, base_[static_cast<int>(home.memory)] + home.offset,
            home.offset, &home.label};
}

namespace {

// Its wait() makes later launches wait, not the host.
class DeviceCopy : public comm::Work {
 public:
  explicit DeviceCopy(std::shared_ptr<ops::cuda::Copy> copy) : copy_(std::move(copy)) {}
  bool poll() override { return copy_->is_through(); }
  void wait() override { copy_->lead(); }

 private:
  std::shared_ptr<ops::cuda::Copy> copy_;
};

}  // namespace

comm::WorkPtr Engine::transfer(const schedule::Action& a, const Bound& b) {
  const bool fetch = a.kind == ActionKind::fetch, disk = a.queue.lane == schedule::kDiskLane;
  Mover& mover = movers_[a.queue];
  if (on_gpu()) {
    if (!mover.stream) mover.stream = ops::cuda_kernels().copy_stream();
    return std::make_shared<DeviceCopy>(
        mover.stream->post(fetch ? b.move.copy : b.move.home, fetch ? b.move.home : b.move.copy, a.bytes));
  }
  if (!mover.queue) {
    if (disk)
      mover.io = std::make_unique<BlockIo>(file_->descriptor(), static_cast<int>(plan_.request.offload.buffers));
    mover.queue = std::make_unique<TransferQueue>();
  }
  return mover.queue->post([this, &io = mover.io, move = b.move, bytes = a.bytes, fetch, disk] {
    if (disk && fetch) return file_->read(*io, move.copy, move.offset, bytes, *move.label);
    if (disk) return file_->write(*io, move.copy, move.offset, bytes, *move.label);
    std::memcpy(fetch ? move.copy : move.home, fetch ? move.home : move.copy, static_cast<size_t>(bytes));
  });
}

// The state was changed where it rests.
void Engine::seal_tiers() {
  if (!file_) return;
  for (const schedule::Value& v : plan_.train().values)
    if (v.persistent && v.memory == Memory::disk && v.kind != schedule::ValueKind::save_copy)
      file_->seal(v.offset, v.bytes);
  looked_at_file_ = true;
}

// What is seen through the file's mapping is compared first: a disk that fails there would end the process. Once it is
// seen, the caller may have changed it. What a GPU writes to host memory is awaited.
void Engine::look_at_tiers() {
  if (on_gpu() && host_memory_.bytes() > 0) ops::cuda_kernels().synchronize();
  if (!file_ || looked_at_file_) return;
  for (const schedule::Value& v : plan_.train().values)
    if (v.persistent && v.memory == Memory::disk && v.kind != schedule::ValueKind::save_copy)
      file_->verify(v.offset, v.bytes, v.label);
  looked_at_file_ = true;
}

// A copy may wait for a lost peer's kernel, which ends only with the communicators, behind the engine's members.
void Engine::keep_transfers() {
  static auto& kept =
      *new std::vector<std::tuple<MappedMemory, PageLock, at::Tensor, std::map<schedule::Queue, Mover>>>;
  kept.emplace_back(std::move(host_memory_), std::move(page_lock_), device_memory_, std::move(movers_));
}

void Engine::leave_tiers() {
  if (file_ && looked_at_file_) file_->leave();
  looked_at_file_ = false;
}

}  // namespace trireme::engine
