#include "trireme/comm/gloo/channel.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

namespace trireme::comm {
namespace {
constexpr auto kDestroyed = "its communicator is being destroyed";

std::string transport_text(const std::exception& error) {
  const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
  return c10_error ? c10_error->what_without_backtrace() : error.what();
}

// Gloo sends bytes, so it gets a flat view of the memory.
std::vector<at::Tensor> as_tensors(void* memory, int64_t bytes) {
  return {at::from_blob(memory, {bytes}, at::TensorOptions(at::kByte))};
}
}  // namespace

GlooChannel::GlooChannel(Group group, c10::intrusive_ptr<c10d::Backend> transport,
                         const std::optional<std::string>& key)
    : group_(std::move(group)),
      parcels_(key ? std::make_unique<GlooParcels>(group_, *key) : nullptr),
      transport_(std::move(transport)) {}

template <typename F>
auto GlooChannel::translated(int peer, F&& f) {
  try {
    return f();
  } catch (const TransportFailure&) {
    throw;
  } catch (const std::exception& error) {
    throw TransportFailure(peer, fmt::format("{}: {}", name_rank(group_, peer), transport_text(error)));
  }
}

GlooChannel::Transfer GlooChannel::send(const void* from, int64_t bytes, int peer, int tag) {
  return translated(peer, [&] {
    auto* parcel = parcels_ ? parcels_->close(from, bytes, peer, tag) : nullptr;
    auto tensors =
        parcel ? as_tensors(parcel->memory.data(), parcel->bytes) : as_tensors(const_cast<void*>(from), bytes);
    return Transfer{transport_->send(tensors, peer, tag), peer, parcel};
  });
}

GlooChannel::Transfer GlooChannel::receive(void* to, int64_t bytes, int peer, int tag) {
  return translated(peer, [&] {
    auto* parcel = parcels_ ? parcels_->await(to, bytes, peer, tag) : nullptr;
    auto tensors = parcel ? as_tensors(parcel->memory.data(), parcel->bytes) : as_tensors(to, bytes);
    return Transfer{transport_->recv(tensors, peer, tag), peer, parcel};
  });
}

void GlooChannel::wait(std::vector<Transfer>& transfers) {
  for (auto t = transfers.begin(); t != transfers.end(); ++t) {
    try {
      wait(*t);
    } catch (...) {
      // Messages that have arrived may name the cause (gloo/exchange.cpp). The others fail to decrypt.
      for (auto other = t; other != transfers.end(); ++other)
        if (other->parcel && other->parcel->to) (void)parcels_->open(*other->parcel);
      throw;
    }
  }
  transfers.clear();
}

void GlooChannel::wait(const Transfer& t) {
  {
    std::lock_guard lock(mutex_);
    if (stopping_) throw TransportFailure(-1, kDestroyed);
    waiting_.insert(t.work);
  }
  // If the work were kept longer, the transport could write to memory that the caller has freed.
  const auto forget = [&] {
    std::lock_guard lock(mutex_);
    waiting_.erase(t.work);
  };
  try {
    // If stop() comes before the wait begins, it has called abort() on the work, and the wait returns.
    translated(t.peer, [&] { t.work->wait(group_.longest_wait()); });
  } catch (...) {
    forget();
    throw;
  }
  forget();
  if (stopping()) throw TransportFailure(-1, kDestroyed);
  if (t.parcel) open(t);
}

void GlooChannel::open(const Transfer& t) {
  if (t.parcel->to && !parcels_->open(*t.parcel))
    throw TransportFailure(t.peer, fmt::format("a message from {} was not encrypted by it: somebody on the network has "
                                               "changed it, or comm.tls differs between ranks",
                                               name_rank(group_, t.peer)));
  parcels_->give_back(t.parcel);
}

void GlooChannel::stop() {
  std::lock_guard lock(mutex_);
  stopping_ = true;
  for (const auto& work : waiting_) work->abort();
}

bool GlooChannel::stopping() {
  std::lock_guard lock(mutex_);
  return stopping_;
}

}  // namespace trireme::comm
