// The two ends of a connection, without server or client around them.
#include "trireme/store/channel.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <memory>
#include <optional>
#include <string>

#include "tests/store/guest.h"

namespace trireme::store::testing {
namespace {

struct Ends {
  Ends() {
    int fds[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    const int room = 1 << 20;  // all is sent at once
    for (const int fd : fds) EXPECT_EQ(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
    const auto as = [](const char* name) { return std::make_shared<Credentials>(kToken, Identity{"job", name}); };
    client.emplace(as("rank 1"), base::FileDescriptor(fds[0]), Channel::Side::client);
    server.emplace(as("the store"), base::FileDescriptor(fds[1]), Channel::Side::server);
  }
  std::optional<Channel> client, server;
};

TEST(Channel, ALargeRequestMayComeWithTheEndOfTheHandshake) {
  Ends ends;
  EXPECT_FALSE(ends.client->handshake());
  EXPECT_FALSE(ends.server->handshake());
  EXPECT_TRUE(ends.client->handshake());
  const std::string request(100 << 10, 'x');
  ends.client->send(request);
  EXPECT_TRUE(ends.server->handshake());
  std::string received;
  for (int turn = 0; turn < 10 && received.size() < request.size(); ++turn) {
    ends.client->flush();
    ends.server->receive(received);
  }
  EXPECT_TRUE(received == request) << received.size();
}

}  // namespace
}  // namespace trireme::store::testing
