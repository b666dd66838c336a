// libtrireme_http.so: asks a metadata service through cpp-httplib.
#include "trireme/launch/notice_http.h"

#include <httplib.h>

namespace trireme::launch {
namespace {

HttpAnswer ask(const std::string& url) {
  const std::string_view after = std::string_view(url).substr(7);  // behind http://, which check_notice has seen
  const size_t slash = after.find('/');
  const std::string host = "http://" + std::string(after.substr(0, slash));
  const std::string path = slash == std::string_view::npos ? "/" : std::string(after.substr(slash));
  httplib::Client client(host);
  client.set_connection_timeout(1);
  client.set_read_timeout(1);
  client.set_write_timeout(1);
  httplib::Headers headers = {{"Metadata-Flavor", "Google"}, {"Metadata", "true"}};
  auto answer = client.Get(path, headers);
  if (answer && answer->status == 401) {  // AWS' IMDSv2 wants a token first
    const auto token =
        client.Put("/latest/api/token", {{"X-aws-ec2-metadata-token-ttl-seconds", "60"}}, "", "text/plain");
    if (!token || token->status != 200) return {401, {}};
    headers.emplace("X-aws-ec2-metadata-token", token->body);
    answer = client.Get(path, headers);
  }
  return answer ? HttpAnswer{answer->status, answer->body} : HttpAnswer{};
}

}  // namespace
}  // namespace trireme::launch

extern "C" __attribute__((visibility("default"))) trireme::launch::HttpAnswer trireme_ask_notice(
    const std::string& url) {
  return trireme::launch::ask(url);
}
