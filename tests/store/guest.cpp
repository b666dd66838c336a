#include "tests/store/guest.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <stdexcept>
#include <thread>

namespace trireme::store::testing {

using namespace std::chrono_literals;

Store::Store(ServerOptions options) {
  if (options.token.empty()) options.token = kToken;
  if (options.job.empty()) options.job = "job";
  options.refused = [this](const std::string& line) {
    const std::lock_guard lock(mutex_);
    refused_.push_back(line);
  };
  server_ = std::make_unique<Server>(listen_at("127.0.0.1", 0), std::move(options));
}

std::unique_ptr<Client> Store::client(const Token& token, const std::string& job,
                                      std::chrono::milliseconds timeout) const {
  return std::make_unique<Client>(
      ClientOptions{.place = {"127.0.0.1", port(), token}, .self = {job, "rank 7"}, .timeout = timeout});
}

std::vector<std::string> Store::refused() const {
  const std::lock_guard lock(mutex_);
  return refused_;
}

std::string Store::await_refusals(std::size_t count) const {
  for (int tries = 0; tries < 1000 && refused().size() < count; ++tries) std::this_thread::sleep_for(10ms);
  std::string text;
  for (const auto& line : refused()) text += line + "\n";
  return text;
}

Stranger::Stranger(int port) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    throw std::runtime_error("the store does not listen");
}

void Stranger::say(const std::string& bytes) const {
  (void)!send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

std::string Stranger::listen() const {
  std::string all;
  char buffer[4096];
  pollfd ready{socket_.get(), POLLIN, 0};
  while (poll(&ready, 1, 2000) == 1) {
    const auto got = recv(socket_.get(), buffer, sizeof buffer, 0);
    if (got <= 0) break;
    all.append(buffer, static_cast<std::size_t>(got));
  }
  return all;
}

base::FileDescriptor Stranger::share() const { return base::FileDescriptor(fcntl(fd(), F_DUPFD_CLOEXEC, 3)); }

bool Stranger::is_out() const {
  char buffer[4096];
  pollfd ready{fd(), POLLIN, 0};
  while (poll(&ready, 1, 10000) == 1)
    if (recv(fd(), buffer, sizeof buffer, 0) <= 0) return true;
  return false;
}

}  // namespace trireme::store::testing
