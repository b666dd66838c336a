#include "trireme/observe/loggers.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <sstream>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/stopwatch.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/observe/append.h"

namespace trireme::observe {
namespace {

constexpr size_t kMostWaiting = 1 << 20;
using std::chrono::milliseconds;
constexpr milliseconds kLoggersGrace{10'000};
constexpr milliseconds kLeastGrace{200};  // for one that reads all the time
constexpr milliseconds kForTheRest{1000};  // of what is left, for the end of the run itself

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream in(line + ",");
  for (std::string cell; std::getline(in, cell, ',');) cells.push_back(cell);
  return cells;
}

/// A number as it stands in JSON; empty if it is not finite. Names of numbers have no commas.
std::string cell_of(double value) { return std::isfinite(value) ? fmt::format("{}", value) : ""; }

constexpr size_t kStepColumn = 2;  // of csv_numbers()

std::vector<base::Measured> csv_numbers(const MetricsRow& row, const CsvLogger::Run& run,
                                        const CsvLogger::Before& before) {
  const auto micro_batches = double(before.micro_batches + (row.step - before.step) * run.micro_batches);
  const int64_t tokens = before.tokens + (row.tokens - before.total_tokens) / run.data_ranks;  // of this rank
  std::vector<base::Measured> numbers = {{"loss", row.loss.value_or(std::nan(""))},  // an empty cell
                                         {"iter", micro_batches},
                                         {"step", double(row.step)},
                                         {"epoch", std::floor(row.epoch)},
                                         {"iter_time", row.seconds / double(run.micro_batches)},
                                         {"remaining_time", row.eta_seconds},
                                         {"tokens", double(tokens)},
                                         {"total_tokens", double(row.tokens)},
                                         {"learning_rate", row.lr}};
  if (row.val_loss) numbers.push_back({"val_loss", *row.val_loss});
  if (row.val_loss && run.has_perplexity) numbers.push_back({"val_ppl", std::exp(*row.val_loss)});
  for (base::Measured& number : numbers_of(row))
    if (number.name != "lr" && std::ranges::find(numbers, number.name, &base::Measured::name) == numbers.end())
      numbers.push_back(std::move(number));
  return numbers;
}

std::string csv_line(const std::vector<base::Measured>& numbers, const std::vector<std::string>& columns) {
  std::vector<std::string> cells;
  for (const std::string& column : columns) {
    const auto number = std::ranges::find(numbers, column, &base::Measured::name);
    cells.push_back(number == numbers.end() ? "" : cell_of(number->value));
  }
  return base::join(cells, ",") + "\n";
}

/// Of a row of the file.
CsvLogger::Before before_of(const std::vector<std::string>& columns, const std::vector<std::string>& cells) {
  const auto number = [&](std::string_view column) -> int64_t {
    const auto at = static_cast<size_t>(std::ranges::find(columns, column) - columns.begin());
    return at < cells.size() ? std::llround(base::parse_number(cells[at]).value_or(0)) : 0;
  };
  return {number("step"), number("iter"), number("tokens"), number("total_tokens")};
}

base::ChildProcess::Options program_of(const std::vector<std::string>& words, std::vector<std::string> variables = {}) {
  const auto file = base::find_program_file(words.front());
  if (!file)
    throw UsageError(
        fmt::format("train.logger_command: there is no program {} that may be executed; give its path, or a "
                    "name on PATH, as in [python3, log.py]",
                    words.front()));
  return {.file = file->string(), .words = words, .variables = std::move(variables)};
}

std::string prometheus_name(const std::string& name) {
  std::string safe = "trireme_" + name;
  std::ranges::replace_if(safe, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return safe;
}

}  // namespace

void check_program(const std::vector<std::string>& words) { program_of(words); }

CsvLogger::CsvLogger(std::filesystem::path path, int64_t resumed_step, Run run) : path_(std::move(path)), run_(run) {
  for (const base::Measured& number : csv_numbers({}, run_, before_)) columns_.push_back(number.name);
  std::error_code failure;
  std::filesystem::create_directories(path_.parent_path(), failure);
  if (failure) base::throw_file_error("create", path_.parent_path(), failure.value());
  std::string kept;
  if (resumed_step > 0 && std::filesystem::exists(path_)) {
    std::istringstream in(base::read_file(path_));
    std::string line;
    std::getline(in, line);
    columns_ = cells_of(line);
    if (columns_.size() <= kStepColumn || columns_[kStepColumn] != "step")
      throw UsageError(
          fmt::format("{} does not begin with the columns loss, iter and step; move it away to start a "
                      "new one",
                      path_.string()));
    while (std::getline(in, line)) {
      const std::vector<std::string> cells = cells_of(line);
      if (in.eof() || cells.size() <= kStepColumn) continue;
      const auto step = static_cast<int64_t>(std::stod("0" + cells[kStepColumn]));
      if (step > resumed_step) continue;
      kept += line + "\n";
      before_ = before_of(columns_, cells);
      last_step_ = step;
    }
  }
  if (before_.step > 0) {  // steps behind the last row were like those before it
    before_.micro_batches = before_.micro_batches * resumed_step / before_.step;
    before_.step = resumed_step;
  }
  kept_ = base::join(columns_, ",") + "\n" + kept;
  if (resumed_step == 0 || !std::filesystem::exists(path_)) go_on();
}

void CsvLogger::go_on() {
  if (!kept_) return;
  base::write_file_atomic(path_, *kept_);
  file_ = base::open_file(path_, O_WRONLY | O_APPEND | O_NOFOLLOW);
  kept_.reset();
}

void CsvLogger::append(const MetricsRow& row) {
  go_on();
  if (std::exchange(last_step_, row.step) == row.step) drop_last_line(file_, path_);
  const size_t before = columns_.size();
  const std::vector<base::Measured> numbers = csv_numbers(row, run_, before_);
  for (const base::Measured& number : numbers)
    if (std::ranges::find(columns_, number.name) == columns_.end()) columns_.push_back(number.name);
  if (columns_.size() > before) {
    const std::string text = base::read_file(path_), more(columns_.size() - before, ',');
    std::istringstream in(text);
    std::string line, all = base::join(columns_, ",") + "\n";
    std::getline(in, line);
    while (std::getline(in, line)) all += line + more + "\n";
    base::write_file_atomic(path_, all);
    file_ = base::open_file(path_, O_WRONLY | O_APPEND | O_NOFOLLOW);
  }
  observe::append(file_, csv_line(numbers, columns_), path_);
}

CommandLogger::CommandLogger(const std::vector<std::string>& words, const Run& run, Say say, TimeLeft time_left)
    : words_(words),
      say_(std::move(say)),
      time_left_(std::move(time_left)),
      child_(program_of(words, {"RUN_NAME=" + run.name, "RUN_FOLDER=" + run.folder})) {}

CommandLogger::~CommandLogger() {
  using Clock = std::chrono::steady_clock;
  milliseconds grace = kLoggersGrace;
  if (const auto left = time_left_ ? time_left_() : std::nullopt)
    grace = std::clamp(milliseconds(std::llround(*left * 1000)) - kForTheRest, kLeastGrace, kLoggersGrace);
  const auto last = Clock::now() + grace;
  while (!waiting_.empty() && !has_ended_ && Clock::now() < last) {
    pollfd input{child_.input(), POLLOUT, 0};
    poll(&input, 1, 50);
    send_waiting();
  }
  child_.end(std::max(milliseconds(0), std::chrono::ceil<milliseconds>(last - Clock::now())));
  if (!has_ended_ && WIFSIGNALED(child_.status()) && WTERMSIG(child_.status()) == SIGKILL)
    say_(
        fmt::format("warn     train.logger_command {} did not end within {:.3g} s of the run and is ended; it may have "
                    "lost numbers",
                    fmt::join(words_, " "), std::chrono::duration<double>(grace).count()));
}

void CommandLogger::append(const MetricsRow& row) {
  if (has_ended_) return;
  const std::string line = to_json(row) + "\n";
  if (waiting_.size() + line.size() <= kMostWaiting) {
    waiting_ += line;
  } else if (!std::exchange(leaves_out_, true)) {
    say_(fmt::format("warn     train.logger_command {} does not read its lines; those beyond {} are left out",
                     fmt::join(words_, " "), base::human_bytes(kMostWaiting)));
  }
  send_waiting();
}

// A program that ends closes its input a moment before.
bool CommandLogger::ends_soon() {
  for (int i = 0; i < 10 && !leaves_out_ && !child_.has_ended(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return child_.has_ended();
}

void CommandLogger::send_waiting() {
  while (!waiting_.empty()) {
    const ssize_t sent = send(child_.input(), waiting_.data(), waiting_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN && errno != EINTR && !ends_soon()) {
      waiting_.clear();  // it has closed its input, and runs
      if (!std::exchange(leaves_out_, true))
        say_(fmt::format("warn     train.logger_command {} reads no more lines; the run goes on without it",
                         fmt::join(words_, " ")));
    }
    if (sent <= 0) break;
    waiting_.erase(0, static_cast<size_t>(sent));
  }
  if (!child_.has_ended()) return;
  has_ended_ = true;
  say_(child_.status() == base::ChildProcess::kCannotStart
           ? fmt::format("warn     train.logger_command {} cannot be started; look at its first line and its rights",
                         fmt::join(words_, " "))
           : fmt::format("warn     train.logger_command {} {}; the run goes on without it", fmt::join(words_, " "),
                         base::text_of_ending(child_.status())));
}

namespace {

base::FileDescriptor listen_at(const std::string& address, uint16_t port) {
  const std::string where = fmt::format("train.prometheus_port {} at {}", port, address);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(port);
  if (inet_pton(AF_INET, address.c_str(), &name.sin_addr) != 1)
    throw UsageError(where + ": train.prometheus_address is an IPv4 address, as 127.0.0.1 or 0.0.0.0");
  base::FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int yes = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  constexpr int kWaitingClients = 8;
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0 ||
      listen(listener.get(), kWaitingClients) != 0)
    throw UsageError(
        fmt::format("{}: {}; take another {}", where, std::strerror(errno),
                    errno == EADDRNOTAVAIL ? "train.prometheus_address: it is none of this machine" : "port"));
  return listener;
}

}  // namespace

void check_prometheus_port(const std::string& address, uint16_t port) { listen_at(address, port); }

PrometheusServer::PrometheusServer(const std::string& address, uint16_t port) : listener_(listen_at(address, port)) {
  wake_ = base::FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  crew_.emplace(1, [this](size_t) { serve(); });
}

PrometheusServer::~PrometheusServer() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t woken = write(wake_.get(), &one, sizeof one);
  crew_.reset();
}

void PrometheusServer::append(const MetricsRow& row) {
  const std::lock_guard lock(mutex_);
  row_ = row;
}

std::string PrometheusServer::text() {
  std::optional<MetricsRow> row;
  {
    const std::lock_guard lock(mutex_);
    row = row_;
  }
  if (!row) return "# no step has ended yet\n";
  std::string all = fmt::format("# TYPE trireme_step gauge\ntrireme_step {}\n", row->step);
  for (const base::Measured& number : numbers_of(*row)) {
    const std::string name = prometheus_name(number.name);
    const std::string value = std::isfinite(number.value) ? fmt::format("{}", number.value)
                              : std::isnan(number.value)  ? "NaN"
                              : number.value > 0          ? "+Inf"
                                                          : "-Inf";
    all += fmt::format("# TYPE {0} gauge\n{0} {1}\n", name, value);
  }
  return all;
}

// One client after another; each gets a second to ask and one to take the answer, also if it does so byte by byte.
void PrometheusServer::serve() {
  constexpr timeval kPatience{1, 0};
  constexpr double kSeconds = 1;
  constexpr size_t kMostRequest = 8192;
  for (;;) {
    pollfd both[] = {{listener_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    if (poll(both, 2, -1) < 0 && errno != EINTR) return;
    if (both[1].revents != 0) return;
    const base::FileDescriptor client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (client.get() < 0) {  // without a descriptor for it the client stays, and poll would return at once
      constexpr int kPauseMs = 100;
      const bool has_gone = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
      if (pollfd wake{wake_.get(), POLLIN, 0}; !has_gone && poll(&wake, 1, kPauseMs) > 0) return;
      continue;
    }
    setsockopt(client.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
    setsockopt(client.get(), SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience);
    std::string request;
    char bytes[1024];
    base::Stopwatch watch;
    while (request.size() < kMostRequest && request.find("\r\n\r\n") == std::string::npos &&
           watch.seconds() < kSeconds) {
      const ssize_t read = recv(client.get(), bytes, sizeof bytes, 0);
      if (read <= 0) break;
      request.append(bytes, static_cast<size_t>(read));
    }
    const bool known = request.starts_with("GET /metrics ") || request.starts_with("GET / ");
    const std::string body = known ? text() : "GET /metrics\n";
    std::string answer = fmt::format(
        "HTTP/1.1 {}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: "
        "close\r\n\r\n{}",
        known ? "200 OK" : "404 Not Found", body.size(), body);
    watch = {};
    for (std::string_view rest = answer; !rest.empty() && watch.seconds() < kSeconds;) {
      const ssize_t sent = send(client.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
      if (sent <= 0) break;
      rest.remove_prefix(static_cast<size_t>(sent));
    }
  }
}

}  // namespace trireme::observe
