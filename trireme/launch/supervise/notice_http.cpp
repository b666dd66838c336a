// libtrireme_http.so: asks a metadata service through cpp-httplib.
#include "trireme/launch/supervise/notice.h"

#include <httplib.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace trireme::launch {
namespace {
constexpr size_t kMostBytes = 64 << 10;             // of a body; services send some hundred
constexpr auto kLongest = std::chrono::seconds(2);  // for the whole answer
constexpr auto kBetweenStops = std::chrono::milliseconds(50);

/// Ends the client's waits after kLongest, again and again: a stop that comes between two requests does not reach the
/// second one, which could then last as long as the service likes.
class Deadline {
 public:
  explicit Deadline(httplib::Client& client)
      : thread_([this, &client](const std::stop_token& stop) {
          std::unique_lock lock(mutex_);
          wake_.wait_for(lock, stop, kLongest, [] { return false; });
          while (!stop.stop_requested()) {
            passed_ = true;
            client.stop();
            wake_.wait_for(lock, stop, kBetweenStops, [] { return false; });
          }
        }) {}
  bool passed() const { return passed_; }

 private:
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::atomic<bool> passed_{false};
  std::jthread thread_;  // the last member, so that it ends first
};

struct Reply {
  int status = 0;
  std::string body;
  bool too_long = false;
};

Reply send(httplib::Client& client, const char* method, const std::string& path, const httplib::Headers& headers) {
  Reply reply;
  httplib::Request request;
  request.method = method;
  request.path = path;
  request.headers = headers;
  request.content_receiver = [&](const char* data, size_t size, uint64_t, uint64_t) {
    reply.too_long = reply.body.size() + size > kMostBytes;
    if (!reply.too_long) reply.body.append(data, size);
    return !reply.too_long;
  };
  if (const auto answer = client.send(request)) reply.status = answer->status;
  return reply;
}

HttpAnswer ask(const std::string& url) {
  const std::string_view after = std::string_view(url).substr(7);  // check_notice requires http://
  const size_t slash = after.find('/');
  const std::string host = "http://" + std::string(after.substr(0, slash));
  const std::string path = slash == std::string_view::npos ? "/" : std::string(after.substr(slash));
  httplib::Client client(host);
  client.set_connection_timeout(1);
  client.set_read_timeout(1);
  client.set_write_timeout(1);
  const Deadline deadline(client);
  httplib::Headers headers = {{"Metadata-Flavor", "Google"}, {"Metadata", "true"}};
  Reply reply = send(client, "GET", path, headers);
  if (reply.status == 401) {  // AWS' IMDSv2 requires a token
    const Reply token = send(client, "PUT", "/latest/api/token",
                             {{"X-aws-ec2-metadata-token-ttl-seconds", "60"}, {"Content-Length", "0"}});
    if (token.status != 200) return {401, {}, "asks for a token and gives none"};
    headers.emplace("X-aws-ec2-metadata-token", token.body);
    reply = send(client, "GET", path, headers);
  }
  if (reply.too_long) return {0, {}, "sends more than 64 KiB"};
  if (deadline.passed() || reply.status == 0) return {0, {}, "does not answer in two seconds with what is HTTP"};
  if (reply.status >= 500) return {reply.status, reply.body, "answers with an error of its own"};
  return {reply.status, std::move(reply.body)};
}
}  // namespace
}  // namespace trireme::launch

extern "C" __attribute__((visibility("default"))) trireme::launch::HttpAnswer trireme_ask_notice(
    const std::string& url) {
  try {
    return trireme::launch::ask(url);
  } catch (const std::exception& error) {
    return {0, {}, std::string("cannot be asked: ") + error.what()};
  }
}
