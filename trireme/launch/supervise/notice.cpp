#include "trireme/launch/supervise/notice.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/log.h"
#include "trireme/base/shared_library.h"
#include "trireme/launch/supervise/stop_signal.h"

namespace trireme::launch {
namespace {
constexpr const char* kLibrary = "libtrireme_http.so";
constexpr std::string_view kScheme = "http://";

AskNotice* load_http() {
  void* library = dlopen(base::library_path(kLibrary).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw UsageError(
        fmt::format("launch.notice_url needs {}, which cannot be opened ({}): run scripts/setup and build again, or "
                    "use launch.notice_file",
                    kLibrary, dlerror()));
  void* ask = dlsym(library, kAskNotice);
  if (ask == nullptr)
    throw UsageError(fmt::format("{} is of another version of Trireme: build and install both together", kLibrary));
  return reinterpret_cast<AskNotice*>(ask);
}

// Azure's scheduled events; not all of them end the machine.
bool tells_of_an_end(const nlohmann::json& events) {
  return std::any_of(events.begin(), events.end(), [](const nlohmann::json& event) {
    if (!event.is_object()) return false;
    const auto type = event.find("EventType");
    return type != event.end() && (*type == "Preempt" || *type == "Terminate");
  });
}

// Changes with every write to the file; all zeros if there is no file.
struct FileMark {
  int64_t seconds = 0, nanoseconds = 0, inode = 0;
  bool operator==(const FileMark&) const = default;
  bool is_there() const { return inode != 0; }
};

FileMark look_at(const std::string& path) {
  struct stat s{};
  if (stat(path.c_str(), &s) != 0) return {};
  return {s.st_mtim.tv_sec, s.st_mtim.tv_nsec, static_cast<int64_t>(s.st_ino)};
}
}  // namespace

bool is_notice(const HttpAnswer& answer) {
  if (answer.status != 200) return false;
  std::string body = answer.body;
  std::erase_if(body, [](unsigned char c) { return std::isspace(c) != 0; });
  if (base::json_too_deep_at(body)) return false;  // not the answer of a metadata service
  const auto json = base::parse_json_if_sound(body);
  if (json.is_object() && json.contains("Events")) return tells_of_an_end(json["Events"]);
  std::transform(body.begin(), body.end(), body.begin(), [](unsigned char c) { return std::toupper(c); });
  return !body.empty() && body != "FALSE" && body != "NONE";
}

void check_notice(const NoticeOptions& options) {
  if (!options.url) return;
  const std::string& url = *options.url;
  if (!url.starts_with(kScheme) || url.size() == kScheme.size() || url[kScheme.size()] == '/')
    throw UsageError(
        fmt::format("launch.notice_url {} is not http://HOST/PATH; metadata services of clouds speak http", url));
  if (std::any_of(url.begin(), url.end(), [](unsigned char c) { return c <= ' ' || c == 0x7f; }))
    throw UsageError("launch.notice_url holds a space or a control character; write it as %20");
  load_http();
}

struct NoticeWatch::State {
  explicit State(NoticeOptions o) : options(std::move(o)), ask(options.url ? load_http() : nullptr) {
    if (options.file) first = look_at(*options.file);
  }

  bool file_speaks() const {
    if (!options.file) return false;
    const FileMark now = look_at(*options.file);
    return now.is_there() && now != first;
  }

  bool url_speaks() {
    if (ask == nullptr) return false;
    const HttpAnswer answer = ask(*options.url);
    tell(answer.problem);
    return is_notice(answer);
  }

  // Warns once for each problem, not at each look.
  void tell(const std::string& problem) {
    if (problem != told && !problem.empty())
      base::warn("launch.notice_url {} {}: the run would miss a notice there; it goes on and asks again", *options.url,
                 problem);
    told = problem;
  }

  // A service's answer must not end this process, so exceptions become warnings.
  bool speaks() {
    try {
      if (file_speaks()) {
        request_stop(kNoticeFile);
        return true;
      }
      if (!url_speaks()) return false;
      request_stop(kNoticeUrl);
      return true;
    } catch (const std::exception& error) {
      if (options.url) tell(fmt::format("cannot be asked ({})", error.what()));
      return false;
    }
  }

  void run(const std::stop_token& stop) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    while (!stop.stop_requested() && !speaks()) wake.wait_for(lock, stop, options.interval, [] { return false; });
  }

  const NoticeOptions options;
  AskNotice* const ask;
  FileMark first;
  std::string told;  // the last problem
  std::condition_variable_any wake;
  std::jthread thread;
};

NoticeWatch::NoticeWatch(NoticeOptions options) : state_(std::make_unique<State>(std::move(options))) {
  if (state_->options.file || state_->options.url)
    state_->thread = std::jthread([state = state_.get()](const std::stop_token& stop) { state->run(stop); });
}

NoticeWatch::~NoticeWatch() = default;

}  // namespace trireme::launch
