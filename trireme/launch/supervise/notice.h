// A cloud's notice that it will reclaim this machine: a file that appears, or the answer of an http address.
//
//   AWS spot   http://169.254.169.254/latest/meta-data/spot/instance-action      404 until the notice (IMDSv1 and v2)
//   GCP        http://metadata.google.internal/computeMetadata/v1/instance/preempted      FALSE, then TRUE
//   Azure      http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01     Preempt or Terminate events
//
// One rank of each machine looks. A notice is a request to stop, like a signal (stop_signal.h). The http client
// (libcurl) is in its own library, libtrireme_http.so, which is opened when an address is given.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

namespace trireme::launch {

/// The answer of an http address; status 0 if no valid answer came.
struct HttpAnswer {
  int status = 0;
  std::string body;
  std::string problem = {};  ///< why there is no answer: "sends more than 64 KiB"
};

/// Whether the answer is a notice: status 200 with a body other than empty, FALSE or NONE. A JSON object with Events
/// (Azure's) is a notice only if an event is a Preempt or Terminate.
bool is_notice(const HttpAnswer& answer);

/// libtrireme_http.so's function: GET of http://host[:port]/path (check_notice) with the headers that metadata services
/// require. After a 401 it fetches AWS' token and tries again. It does not throw: if an address does not answer within
/// two seconds, or answers with more than 64 KiB, the status is 0 and there is a problem.
using AskNotice = HttpAnswer(const std::string& url);
constexpr const char* kAskNotice = "trireme_ask_notice";

struct NoticeOptions {
  std::optional<std::string> file;
  std::optional<std::string> url;
  std::chrono::milliseconds interval{5'000};
};

/// Errors    UsageError for an address that is not http://host/path, or if libtrireme_http.so is missing
void check_notice(const NoticeOptions& options);

/// Looks every `interval` in its own thread, and requests a stop (request_stop) at the first notice. A file that exists
/// at the start counts only when it changes, because a restarted job must not stop at an old notice. An address without
/// a valid answer gives one warning.
class NoticeWatch {
 public:
  explicit NoticeWatch(NoticeOptions options);
  /// Waits for a request in progress, two seconds at most.
  ~NoticeWatch();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::launch
