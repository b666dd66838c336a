#include "trireme/comm/gloo_channel.h"

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

// Gloo sends bytes; a flat view spares it the questions about shapes.
std::vector<at::Tensor> as_tensors(void* memory, int64_t bytes) {
  return {at::from_blob(memory, {bytes}, at::TensorOptions(at::kByte))};
}

}  // namespace

GlooChannel::GlooChannel(Group group, c10::intrusive_ptr<c10d::Backend> transport)
    : group_(std::move(group)), transport_(std::move(transport)) {}

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
    auto tensors = as_tensors(const_cast<void*>(from), bytes);
    return Transfer{transport_->send(tensors, peer, tag), peer};
  });
}

GlooChannel::Transfer GlooChannel::receive(void* to, int64_t bytes, int peer, int tag) {
  return translated(peer, [&] {
    auto tensors = as_tensors(to, bytes);
    return Transfer{transport_->recv(tensors, peer, tag), peer};
  });
}

void GlooChannel::wait(std::vector<Transfer>& transfers) {
  for (const Transfer& t : transfers) {
    // A stop() may come before the wait begins: then abort() has been called on the work, and the wait returns.
    begin_wait(t);
    try {
      translated(t.peer, [&] { t.work->wait(group_.timeout); });
    } catch (...) {
      end_wait(t);
      throw;
    }
    end_wait(t);
    if (stopping()) throw TransportFailure(-1, kDestroyed);
  }
  transfers.clear();
}

void GlooChannel::begin_wait(const Transfer& t) {
  std::lock_guard lock(mutex_);
  if (stopping_) throw TransportFailure(-1, kDestroyed);
  waiting_.insert(t.work);
}

// A work that is kept longer would let the transport write to memory that its caller has given back.
void GlooChannel::end_wait(const Transfer& t) {
  std::lock_guard lock(mutex_);
  waiting_.erase(t.work);
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
