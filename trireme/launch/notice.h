// A cloud's word that this machine will be taken away: a file that appears, or an http address that says so.
//
//   AWS spot   http://169.254.169.254/latest/meta-data/spot/instance-action      404 until the notice (IMDSv1 and v2)
//   GCP        http://metadata.google.internal/computeMetadata/v1/instance/preempted      FALSE, then TRUE
//   Azure      http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01     Events with Preempt,
//   Terminate
//
// One rank of each machine looks; what it finds is a request to stop like a signal (stop_signal.h). The http client
// (cpp-httplib) lies in a library of its own, libtrireme_http.so, which is opened when an address is given.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::launch {

/// What an address answered: status 0 where nobody did, or where the answer is not one.
struct HttpAnswer {
  int status = 0;
  std::string body;
  std::string problem = {};  ///< why there is no answer: "sends more than 64 KiB"
};

/// Whether the answer is a notice: 200 with a body that is not empty, FALSE or NONE. A JSON object with Events
/// (Azure's) is one only where an event is a Preempt or Terminate.
bool is_notice(const HttpAnswer& answer);

struct NoticeOptions {
  std::optional<std::string> file;
  std::optional<std::string> url;
  std::chrono::milliseconds interval{5'000};
};

/// Refuses what NoticeWatch would refuse. Errors: UsageError for an address that is not http://host/path, or where
/// libtrireme_http.so is missing
void check_notice(const NoticeOptions& options);

/// Looks every `interval` in a thread of its own, and asks to stop (request_stop) at the first notice. A file that is
/// there already counts when it changes: a job that starts again must not stop at the notice before. An address that
/// does not answer, not in two seconds, with more than 64 KiB or with nonsense is a warning, once until it changes.
class NoticeWatch {
 public:
  explicit NoticeWatch(NoticeOptions options);
  /// Waits for an answer under way: two seconds at most.
  ~NoticeWatch();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::launch
