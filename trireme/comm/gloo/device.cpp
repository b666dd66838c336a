#include "trireme/comm/gloo/device.h"

#include <fmt/format.h>
#include <netinet/in.h>

#include <gloo/transport/tcp/device.h>
#include <torch/headeronly/version.h>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <typeinfo>

namespace trireme::comm {

static_assert(TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR == 11,
              "compare gloo/shim/gloo/transport/tcp/device.h with the Gloo of this LibTorch, then allow it here");

namespace {
namespace tcp = ::gloo::transport::tcp;

std::shared_ptr<::gloo::transport::Device> make_device(const std::string& interface) {
  using c10d::ProcessGroupGloo;
  return interface.empty() ? ProcessGroupGloo::createDefaultDevice(false)
                           : ProcessGroupGloo::createDeviceForInterface(interface, false);
}

tcp::Listener& listener_of(const std::shared_ptr<::gloo::transport::Device>& device) {
  // GLOO_DEVICE_TRANSPORT may choose another kind of device.
  auto& made = *device;
  if (typeid(made) != typeid(tcp::Device))
    throw std::runtime_error("unset GLOO_DEVICE_TRANSPORT: ranks connect over Gloo's plain TCP device alone");
  return *static_cast<tcp::Device&>(made).listener_;
}

void append(std::vector<uint8_t>& bytes, const void* from, std::size_t count) {
  const auto* begin = static_cast<const uint8_t*>(from);
  bytes.insert(bytes.end(), begin, begin + count);
}
}  // namespace

GlooDevice::GlooDevice(const std::string& interface) : device_(make_device(interface)) {
  tcp::Listener& listener = listener_of(device_);
  listener.shutdown();  // when it returns, Gloo's thread no longer uses the listener
  const std::lock_guard lock(listener.mutex_);
  listener.seqToSocket_.clear();  // connections that arrived before the shutdown
}

int GlooDevice::listener() const { return listener_of(device_).listener_->fd_; }

std::string GlooDevice::address() const {
  const sockaddr_storage& address = listener_of(device_).addr_.impl_.ss;
  const std::size_t size = address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  return {reinterpret_cast<const char*>(&address), size};
}

void GlooDevice::hand_over(std::vector<base::FileDescriptor> sockets) const {
  tcp::Listener& listener = listener_of(device_);
  // The k-th pair of a device waits for a connection that says k.
  for (std::size_t k = 0; k < sockets.size(); ++k)
    if (sockets[k].get() >= 0) listener.haveConnection(std::make_shared<tcp::Socket>(sockets[k].release()), k);
  ::shutdown(listener.listener_->fd_, SHUT_RDWR);
}

// In Gloo, the rank with the larger address of two connects. Here each rank is told that all other addresses are
// larger. So each waits for connections, and it has them already.
c10::intrusive_ptr<c10d::Store> GlooDevice::directory(int rank, int size) const {
  sockaddr_storage largest;
  std::memset(&largest, 0xff, sizeof largest);
  largest.ss_family = listener_of(device_).addr_.impl_.ss.ss_family;
  const std::size_t no_name = 0, address_bytes = sizeof(tcp::Address::impl_);
  const ssize_t number = 0;
  std::vector<uint8_t> rank_info;  // gloo::transport::tcp::Rank::bytes
  append(rank_info, &no_name, sizeof no_name);
  append(rank_info, &address_bytes, sizeof address_bytes);
  append(rank_info, &largest, sizeof largest);
  append(rank_info, &number, sizeof number);
  for (int k = 0; k < size; ++k) append(rank_info, &number, sizeof number);
  auto store = c10::make_intrusive<c10d::HashStore>();
  for (int k = 0; k < size; ++k)
    if (k != rank) store->set(fmt::format("0/{}", k), rank_info);  // of the first device
  return store;
}

}  // namespace trireme::comm
