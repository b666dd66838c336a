#include "trireme/launch/supervise/notice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/launch/supervise/stop_signal.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

bool stops_within(std::chrono::milliseconds time) {
  const auto until = std::chrono::steady_clock::now() + time;
  while (!stop_requested() && std::chrono::steady_clock::now() < until) usleep(2000);
  return stop_requested();
}

class Notice : public ::testing::Test {
 protected:
  Notice() { clear_stop_request(); }
  ~Notice() override { clear_stop_request(); }
};

TEST(NoticeAnswer, CloudsSayItInTheirWays) {
  for (const auto& [status, body, means] : std::vector<std::tuple<int, std::string, bool>>{
           {404, "<html>no such thing</html>", false},                                            // AWS before
           {200, R"({"action": "terminate", "time": "2026-11-22T08:22:00Z"})", true},             // AWS
           {200, "FALSE", false},                                                                 // GCP before
           {200, "TRUE\n", true},                                                                 // GCP
           {200, "NONE", false},                                                                  // GCP, maintenance
           {200, R"({"DocumentIncarnation": 1, "Events": []})", false},                           // Azure before
           {200, R"({"Events": [{"EventId": "1", "EventType": "Reboot"}]})", false},              // Azure, no end
           {200, R"({"Events": [{"EventType": "Freeze"}, {"EventType": "Preempt"}]})", true},     // Azure
           {200, R"({"Events": ["what"]})", false},
           {200, R"({"Events": [{"EventType": null}, {"EventType": 7}, {}, null, [[]]]})", false},  // no service's
           {200, R"({"Events": null})", false},
           {200, R"({"Events": {"a": {"EventType": "Reboot"}}})", false},
           {200, "", false},
           {500, "TRUE", false},
           {0, "", false}})
    EXPECT_EQ(is_notice({status, body}), means) << status << " " << body;
}

TEST_F(Notice, AFileThatAppearsOrChangesAsksToStop) {
  const fs::path file = fs::temp_directory_path() / ("notice-" + std::to_string(getpid()));
  fs::remove(file);
  for (const bool stale : {false, true}) {
    clear_stop_request();
    if (!stale) fs::remove(file);
    {
      NoticeWatch watch({.file = file.string(), .interval = 5ms});
      EXPECT_FALSE(stops_within(50ms)) << "a notice of the run before";
      std::ofstream(file.string() + ".new") << "terminate";
      fs::rename(file.string() + ".new", file);
      EXPECT_TRUE(stops_within(20s));
    }
    EXPECT_EQ(stop_signal(), kNoticeFile);
  }
  fs::remove(file);
}

/// A metadata service of this machine.
class Service {
 public:
  explicit Service(const std::function<void(httplib::Server&)>& set_up) {
    set_up(server_);
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
  }
  ~Service() {
    server_.stop();
    thread_.join();
  }
  std::string url(const std::string& path) const { return "http://127.0.0.1:" + std::to_string(port_) + path; }

 private:
  httplib::Server server_;
  int port_ = 0;
  std::thread thread_;
};

TEST_F(Notice, GcpsAnswerTurnsToTrue) {
  std::atomic<int> asked{0};
  const Service service([&](httplib::Server& s) {
    s.Get("/computeMetadata/v1/instance/preempted", [&](const httplib::Request& request, httplib::Response& answer) {
      if (request.get_header_value("Metadata-Flavor") != "Google") answer.status = 403;
      answer.set_content(++asked < 3 ? "FALSE" : "TRUE", "text/plain");
    });
  });
  NoticeWatch watch({.url = service.url("/computeMetadata/v1/instance/preempted"), .interval = 5ms});
  EXPECT_TRUE(stops_within(20s));
  EXPECT_EQ(stop_signal(), kNoticeUrl);
  EXPECT_EQ(asked, 3);
}

// Whoever has taken the address' place: the run goes on, and says once what is wrong.
TEST_F(Notice, WhatIsNoAnswerIsAWarning) {
  const Service service([&](httplib::Server& s) {
    s.Get("/null", [](const httplib::Request&, httplib::Response& answer) {
      answer.set_content(R"({"Events": [{"EventType": null}]})", "application/json");
    });
    s.Get("/huge", [](const httplib::Request&, httplib::Response& answer) {
      answer.set_content_provider("text/plain", [](size_t, httplib::DataSink& sink) {
        const std::string much(1 << 16, '[');
        return sink.write(much.data(), much.size());
      });
    });
    s.Get("/drip", [](const httplib::Request&, httplib::Response& answer) {
      answer.set_chunked_content_provider("text/plain", [](size_t, httplib::DataSink& sink) {
        std::this_thread::sleep_for(100ms);
        return sink.write(" ", 1);
      });
    });
    s.Get("/error", [](const httplib::Request&, httplib::Response& answer) { answer.status = 503; });
  });
  for (const auto& [path, words] :
       std::vector<std::pair<std::string, std::string>>{{"/null", ""},
                                                        {"/huge", "sends more than 64 KiB"},
                                                        {"/drip", "does not answer in two seconds"},
                                                        {"/error", "answers with an error of its own"},
                                                        {"/absent", ""}}) {
    ::testing::internal::CaptureStderr();
    const auto start = std::chrono::steady_clock::now();
    {
      NoticeWatch watch({.url = service.url(path), .interval = 5ms});
      EXPECT_FALSE(stops_within(path == "/drip" ? 2500ms : 300ms)) << path;
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, 20s) << path;
    const std::string said = ::testing::internal::GetCapturedStderr();
    if (words.empty())
      EXPECT_EQ(said, "") << path;
    else
      EXPECT_EQ(said.find(words) != std::string::npos && said.find("warn") == said.rfind("warn"), true) << path << said;
  }
}

TEST_F(Notice, AwsWantsATokenFirst) {
  const Service service([&](httplib::Server& s) {
    s.Put("/latest/api/token", [](const httplib::Request& request, httplib::Response& answer) {
      if (!request.has_header("X-aws-ec2-metadata-token-ttl-seconds")) answer.status = 400;
      answer.set_content("secret", "text/plain");
    });
    s.Get("/latest/meta-data/spot/instance-action", [](const httplib::Request& request, httplib::Response& answer) {
      if (request.get_header_value("X-aws-ec2-metadata-token") != "secret") answer.status = 401;
      answer.set_content(R"({"action": "stop"})", "application/json");
    });
  });
  NoticeWatch watch({.url = service.url("/latest/meta-data/spot/instance-action"), .interval = 5ms});
  EXPECT_TRUE(stops_within(20s));
}

TEST_F(Notice, ServicesThatDoNotAnswerAreNoNotice) {
  const Service service([](httplib::Server&) {});
  NoticeWatch missing({.url = service.url("/nothing"), .interval = 5ms});
  NoticeWatch nobody({.url = "http://127.0.0.1:1/", .interval = 5ms});
  EXPECT_FALSE(stops_within(100ms));
}

TEST(NoticeAddress, MustBeHttp) {
  for (const char* url : {"https://metadata/", "169.254.169.254", "http://", "http:///path", "ftp://x/"}) {
    try {
      check_notice({.url = url});
      ADD_FAILURE() << url;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr(std::string("launch.notice_url ") + url + " is not http://HOST/PATH"));
    }
  }
  check_notice({.file = "/anywhere"});
  check_notice({.url = "http://metadata.google.internal/computeMetadata/v1/instance/preempted"});
}

}  // namespace
}  // namespace trireme::launch
