// The parts of Gloo's TCP transport that gloo/device.cpp uses. Classes and members are in Gloo's own order, because
// libtorch_cpu was compiled with that order. Source: gloo/transport/tcp/{address,device,listener,socket}.h of
// LibTorch's Gloo. gloo/device.cpp does not compile with a LibTorch for which nobody has compared these files.
#pragma once

#include <sys/socket.h>

#include <gloo/transport/device.h>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace gloo::transport {

class Address {
 public:
  virtual ~Address() = 0;
  virtual std::string str() const = 0;
  virtual std::vector<char> bytes() const = 0;
};

namespace tcp {

class Error;
class Loop;

class Handler {
 public:
  virtual ~Handler() = default;
  virtual void handleEvents(Loop& loop, int events) = 0;
};

class Address final : public ::gloo::transport::Address {
 public:
  ~Address() override;
  std::string str() const override;
  std::vector<char> bytes() const override;

  struct {
    sockaddr_storage ss;
    ssize_t seq;
  } impl_;
  mutable std::mutex m_;
};

class Socket final : public std::enable_shared_from_this<Socket> {
 public:
  explicit Socket(int fd);
  ~Socket();
  int fd_;
};

class Listener final : public Handler {
 public:
  ~Listener() override;
  void handleEvents(Loop& loop, int events) override;
  void shutdown();
  void haveConnection(std::shared_ptr<Socket> socket, ssize_t seq);

  std::mutex mutex_;
  std::shared_ptr<Loop> loop_;
  std::shared_ptr<Socket> listener_;
  std::shared_ptr<std::atomic<bool>> closed_;
  Address addr_;
  ssize_t seq_;
  std::unordered_map<ssize_t, std::function<void(std::shared_ptr<Socket> socket, const Error& error)>> seqToCallback_;
  std::unordered_map<ssize_t, std::shared_ptr<Socket>> seqToSocket_;
};

struct attr {
  std::string hostname, iface;
  int ai_family, ai_socktype, ai_protocol;
  sockaddr_storage ai_addr;
  int ai_addrlen;
};

class Device : public ::gloo::transport::Device, public std::enable_shared_from_this<Device> {
 public:
  ~Device() override;
  std::string str() const override;
  const std::string& getPCIBusID() const override;
  int getInterfaceSpeed() const override;
  std::shared_ptr<Context> createContext(int rank, int size) override;

  attr attr_;
  bool lazyInit_;
  std::shared_ptr<Loop> loop_;
  std::shared_ptr<Listener> listener_;
};

}  // namespace tcp
}  // namespace gloo::transport
