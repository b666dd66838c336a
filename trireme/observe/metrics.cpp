#include "trireme/observe/metrics.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "trireme/base/json.h"
#include "trireme/observe/append.h"

namespace trireme::observe {
namespace {
using Json = nlohmann::ordered_json;

double number_at(const Json& object, const char* key) {
  const auto& value = object.at(key);
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

// nlohmann writes numbers that are not finite as null.
MetricsRow parse_row(std::string_view line) {
  const Json object = base::parse_json<Json>(line);
  MetricsRow row;
  row.step = base::whole_number(object.at("step"));
  row.tokens = base::whole_number(object.at("tokens"));
  if (object.contains("loss")) row.loss = number_at(object, "loss");
  if (object.contains("val_loss")) row.val_loss = number_at(object, "val_loss");
  if (object.contains("measures"))
    for (const auto& [name, value] : object["measures"].items())
      row.measures.push_back({name, number_at(object["measures"], name.c_str())});
  row.grad_norm = number_at(object, "grad_norm");
  row.lr = number_at(object, "lr");
  if (object.contains("loss_scale")) row.loss_scale = number_at(object, "loss_scale");
  if (object.contains("skipped")) row.skipped = base::whole_number(object.at("skipped"));
  row.tokens_per_second = number_at(object, "tokens_per_second");
  if (object.contains("peak_fraction")) row.peak_fraction = number_at(object, "peak_fraction");
  row.seconds = number_at(object, "seconds");
  row.rss_bytes = base::whole_number(object.at("rss_bytes"));
  if (object.contains("shared_bytes")) row.shared_bytes = base::whole_number(object.at("shared_bytes"));
  if (object.contains("resumed")) row.resumed = base::whole_number(object.at("resumed"));
  row.measured_anew = object.value("measured_anew", false);
  return row;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}
}  // namespace

MetricsRow metrics_row(const base::StepEvent& event) {
  MetricsRow row;
  row.step = event.step;
  row.tokens = event.tokens;
  row.loss = event.loss;
  row.val_loss = event.val_loss;
  row.measures = event.measures;
  row.grad_norm = event.grad_norm;
  row.lr = event.lr;
  row.loss_scale = event.loss_scale;
  row.skipped = event.skipped;
  row.tokens_per_second = event.tokens_per_second;
  row.peak_fraction = event.peak_fraction;
  row.seconds = event.step_seconds;
  row.rss_bytes = event.rss_bytes;
  row.shared_bytes = event.shared_bytes;
  row.epoch = event.epoch;
  row.eta_seconds = event.eta_seconds;
  return row;
}

bool has_later_rows(const std::filesystem::path& path, int64_t step) {
  if (!std::filesystem::exists(path)) return false;
  return std::ranges::any_of(read_metrics(path), [&](const MetricsRow& row) { return row.step > step; });
}

base::StepEvent joined_with_row(base::StepEvent found, const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return found;
  const std::vector<MetricsRow> rows = read_metrics(path);
  const auto row = std::ranges::find(rows.rbegin(), rows.rend(), found.step, &MetricsRow::step);
  if (row == rows.rend()) return found;
  found.loss = row->loss;
  found.grad_norm = row->grad_norm;
  found.lr = row->lr;
  found.loss_scale = row->loss_scale;
  found.skipped = row->skipped;
  found.tokens_per_second = row->tokens_per_second;
  found.peak_fraction = row->peak_fraction;
  found.step_seconds = row->seconds;
  found.rss_bytes = row->rss_bytes;
  found.shared_bytes = row->shared_bytes;
  std::vector<base::Measured> measures = row->measures;
  std::erase_if(measures, [&](const base::Measured& old) {
    return std::ranges::find(found.measures, old.name, &base::Measured::name) != found.measures.end();
  });
  found.measures.insert(found.measures.begin(), measures.begin(), measures.end());
  return found;
}

std::string to_json(const MetricsRow& row) {
  Json object;
  object["step"] = row.step;
  object["tokens"] = row.tokens;
  if (row.loss) object["loss"] = *row.loss;
  if (row.val_loss) object["val_loss"] = *row.val_loss;
  for (const base::Measured& measured : row.measures) object["measures"][measured.name] = measured.value;
  object["grad_norm"] = row.grad_norm;
  object["lr"] = row.lr;
  if (row.loss_scale) object["loss_scale"] = *row.loss_scale, object["skipped"] = row.skipped;
  object["tokens_per_second"] = row.tokens_per_second;
  if (row.peak_fraction) object["peak_fraction"] = *row.peak_fraction;
  object["seconds"] = row.seconds;
  object["rss_bytes"] = row.rss_bytes;
  if (row.shared_bytes) object["shared_bytes"] = *row.shared_bytes;
  if (row.resumed) object["resumed"] = *row.resumed;
  if (row.measured_anew) object["measured_anew"] = true;
  return base::json_text(object);
}

std::vector<base::Measured> numbers_of(const MetricsRow& row) {
  std::vector<base::Measured> numbers;
  if (row.loss) numbers.push_back({"loss", *row.loss});
  if (row.val_loss) numbers.push_back({"val_loss", *row.val_loss});
  for (const base::Measured& measured : row.measures) numbers.push_back({measured.name, measured.value});
  numbers.push_back({"grad_norm", row.grad_norm});
  numbers.push_back({"lr", row.lr});
  if (row.loss_scale) {
    numbers.push_back({"loss_scale", *row.loss_scale});
    numbers.push_back({"skipped", static_cast<double>(row.skipped)});
  }
  numbers.push_back({"tokens", static_cast<double>(row.tokens)});
  numbers.push_back({"tokens_per_second", row.tokens_per_second});
  if (row.peak_fraction) numbers.push_back({"peak_fraction", *row.peak_fraction});
  numbers.push_back({"seconds", row.seconds});
  numbers.push_back({"rss_bytes", static_cast<double>(row.rss_bytes)});
  if (row.shared_bytes) numbers.push_back({"shared_bytes", static_cast<double>(*row.shared_bytes)});
  return numbers;
}

void append(const base::FileDescriptor& file, std::string_view bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) base::throw_file_error("write", path, errno);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

void drop_last_line(const base::FileDescriptor& file, const std::filesystem::path& path) {
  const std::string text = base::read_file(path);
  const size_t before = text.size() < 2 ? std::string::npos : text.rfind('\n', text.size() - 2);
  if (ftruncate(file.get(), before == std::string::npos ? 0 : static_cast<off_t>(before + 1)) != 0)
    base::throw_file_error("write", path, errno);
}

MetricsWriter::MetricsWriter(std::filesystem::path path, int64_t resumed_step) : path_(std::move(path)) {
  cut_behind_ = resumed_step;
  if (path_.has_parent_path()) {
    std::error_code failure;
    std::filesystem::create_directories(path_.parent_path(), failure);
    if (failure) base::throw_file_error("create", path_.parent_path(), failure.value());
  }
  if (resumed_step == 0 || !std::filesystem::exists(path_)) {
    go_on();
  } else {
    read_metrics(path_);
    file_ = base::open_file(path_, O_WRONLY | O_APPEND | O_NOFOLLOW);
  }
}

void MetricsWriter::go_on() {
  if (!cut_behind_) return;
  std::string kept;
  if (*cut_behind_ > 0 && std::filesystem::exists(path_)) {
    for (const auto& row : read_metrics(path_))
      if (row.step <= *cut_behind_) {
        kept += to_json(row) + "\n";
        last_step_ = row.step, last_resumed_ = row.resumed, last_anew_ = row.measured_anew;
      }
  }
  base::write_file_atomic(path_, kept);
  file_ = base::open_file(path_, O_WRONLY | O_APPEND | O_NOFOLLOW);
  cut_behind_.reset();
}

void MetricsWriter::append(const MetricsRow& row) {
  go_on();
  MetricsRow written = row;
  if (last_step_ == row.step) {
    drop_last_line(file_, path_);
    if (!written.resumed) written.resumed = last_resumed_;
    written.measured_anew |= last_anew_;
  }
  last_step_ = row.step, last_resumed_ = written.resumed, last_anew_ = written.measured_anew;
  observe::append(file_, to_json(written) + "\n", path_);
}

MetricsSink::MetricsSink(int64_t resumed_step, bool measured_anew, int64_t log_interval,
                         std::function<void(const MetricsRow&)> write)
    : log_interval_(std::max<int64_t>(1, log_interval)), measured_anew_(measured_anew), write_(std::move(write)) {
  if (resumed_step > 0) resumed_ = resumed_step;
}

void MetricsSink::step(const base::StepEvent& event) {
  const bool last = event.max_steps > 0 && event.step >= event.max_steps;
  unwritten_.reset();
  const bool says_anew = resumed_ && measured_anew_;  // before a save: a kill would lose it
  if (last || event.val_loss || event.is_kept || says_anew || event.step % log_interval_ == 0)
    write(event);
  else
    unwritten_ = event;
}

void MetricsSink::finish() {
  if (const auto event = std::exchange(unwritten_, std::nullopt)) write(*event);
}

void MetricsSink::write(const base::StepEvent& event) {
  MetricsRow row = metrics_row(event);
  if (resumed_ != event.step) {  // that of the step before this start belongs to the start before
    row.measured_anew = resumed_ && measured_anew_;
    row.resumed = std::exchange(resumed_, std::nullopt);
  }
  write_(row);
}

std::vector<MetricsRow> read_metrics(const std::filesystem::path& path) {
  const std::string text = base::read_file(path);
  const auto lines = lines_of(text);
  std::vector<MetricsRow> rows;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].empty()) continue;
    try {
      rows.push_back(parse_row(lines[i]));
    } catch (const nlohmann::json::exception& error) {
      if (i + 1 == lines.size() && !text.ends_with('\n')) break;
      throw UsageError(fmt::format("{}:{} is not a row of metrics ({}); move the file away to start a new one",
                                   path.string(), i + 1, base::json_reason(error)));
    }
  }
  return rows;
}

}  // namespace trireme::observe
