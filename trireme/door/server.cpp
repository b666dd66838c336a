#include "trireme/door/server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "trireme/base/log.h"
#include "trireme/door/server_loop.h"

namespace trireme::door {
namespace {

sockaddr_in address_of(const base::FileDescriptor& listener) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  if (getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    throw Error(fmt::format("the socket where ranks meet has no address: {}", std::strerror(errno)));
  return address;
}

// Signals are the business of the process' own threads.
std::thread thread_without_signals(std::function<void()> body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

base::FileDescriptor listen_at(const std::string& host, int port) {
  base::FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  const int yes = 1;
  if (port != 0) setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1)
    errno = EINVAL;
  else if (bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
           listen(listener.get(), SOMAXCONN) == 0)
    return listener;
  throw Error(fmt::format("cannot listen at {}:{}: {}", host, port, std::strerror(errno)));
}

Server::Server(base::FileDescriptor listener, ServerOptions options) : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  const sockaddr_in address = address_of(listener);
  port_ = ntohs(address.sin_port);
  char text[INET_ADDRSTRLEN] = "127.0.0.1";
  if (address.sin_addr.s_addr != htonl(INADDR_ANY)) inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
  reachable_at_ = text;
  if (wake_.get() < 0) throw Error(fmt::format("no descriptor left for the store: {}", std::strerror(errno)));
  fcntl(listener.get(), F_SETFL, fcntl(listener.get(), F_GETFL) | O_NONBLOCK);
  loop_ = std::make_unique<Loop>(std::move(listener), wake_.get(), std::move(options));
  thread_ = thread_without_signals([this] {
    try {
      loop_->run();
    } catch (const std::exception& error) {
      base::warn("the store where ranks meet has ended, and its job will: {}", error.what());
    }
  });
}

Server::~Server() {
  const std::uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof one);
  thread_.join();
}

}  // namespace trireme::door
