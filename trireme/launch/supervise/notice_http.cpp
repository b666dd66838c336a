// libtrireme_http.so: asks a metadata service through libcurl.
#include <curl/curl.h>

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "trireme/launch/supervise/notice.h"

namespace trireme::launch {
namespace {
using Clock = std::chrono::steady_clock;
constexpr size_t kMostBytes = 64 << 10;             // of an answer with its headers; services send some hundred
constexpr auto kLongest = std::chrono::seconds(2);  // for the whole look, with AWS' token

class Headers {
 public:
  explicit Headers(const std::vector<std::string>& lines) {
    for (const std::string& line : lines) list_ = curl_slist_append(list_, line.c_str());
  }
  ~Headers() { curl_slist_free_all(list_); }
  Headers(const Headers&) = delete;
  curl_slist* get() const { return list_; }

 private:
  curl_slist* list_ = nullptr;
};

struct Reply {
  int status = 0;
  std::string body;
  size_t bytes = 0;  ///< with the headers
  bool too_long() const { return bytes > kMostBytes; }
};

// libcurl ends the transfer if less is taken than it offers.
size_t take_header(char*, size_t size, size_t count, void* reply) {
  auto& r = *static_cast<Reply*>(reply);
  r.bytes += size * count;
  return r.too_long() ? 0 : size * count;
}
size_t take_body(char* data, size_t size, size_t count, void* reply) try {
  const size_t taken = take_header(data, size, count, reply);
  static_cast<Reply*>(reply)->body.append(data, taken);
  return taken;
} catch (const std::bad_alloc&) {  // no exception passes through libcurl
  return 0;
}

Reply send(const char* method, const std::string& url, const std::vector<std::string>& lines, Clock::time_point until) {
  const std::unique_ptr<CURL, void (*)(CURL*)> curl(curl_easy_init(), curl_easy_cleanup);
  if (!curl) throw std::runtime_error("libcurl does not start");
  const auto set = [&](CURLoption option, auto value) {
    if (const CURLcode code = curl_easy_setopt(curl.get(), option, value); code != CURLE_OK)
      throw std::runtime_error(curl_easy_strerror(code));
  };
  Reply reply;
  const Headers headers(lines);
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_CUSTOMREQUEST, method);
  set(CURLOPT_PROTOCOLS_STR, "http");
  set(CURLOPT_PROXY, "");  // metadata services are on the machine's own link
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_TIMEOUT_MS, std::max<long>(1, left));
  set(CURLOPT_HTTPHEADER, headers.get());
  set(CURLOPT_HEADERFUNCTION, take_header);
  set(CURLOPT_HEADERDATA, &reply);
  set(CURLOPT_WRITEFUNCTION, take_body);
  set(CURLOPT_WRITEDATA, &reply);
  long status = 0;
  if (curl_easy_perform(curl.get()) == CURLE_OK) curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
  reply.status = static_cast<int>(status);
  return reply;
}

HttpAnswer ask(const std::string& url) {
  const auto until = Clock::now() + kLongest;
  std::vector<std::string> headers = {"Metadata-Flavor: Google", "Metadata: true"};
  Reply reply = send("GET", url, headers, until);
  if (reply.status == 401) {  // AWS' IMDSv2 requires a token
    const size_t path = url.find('/', std::string_view("http://").size());
    const Reply token = send("PUT", url.substr(0, path) + "/latest/api/token",
                             {"X-aws-ec2-metadata-token-ttl-seconds: 60", "Content-Length: 0"}, until);
    if (token.status != 200 || token.body.find_first_of("\r\n") != std::string::npos)
      return {401, {}, "asks for a token and gives none"};
    headers.push_back("X-aws-ec2-metadata-token: " + token.body);
    reply = send("GET", url, headers, until);
  }
  if (reply.too_long()) return {0, {}, "sends more than 64 KiB"};
  if (reply.status == 0) return {0, {}, "does not answer in two seconds with what is HTTP"};
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
