// Events for TensorBoard: the numbers of metrics.jsonl as scalars, settings and samples as texts.
//
// A file of events is a sequence of records (TensorFlow's TFRecord): length, its checksum, a protocol buffer `Event`,
// its checksum. Only the fields that scalars and texts need are written. Source    tensorflow/core/util/event.proto,
// tensorflow/core/framework/summary.proto, tensorflow/core/lib/io/record_writer.h
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/files.h"
#include "trireme/observe/metrics.h"

namespace trireme::observe {

/// The start of the names of files of events.
inline constexpr std::string_view kEventsPrefix = "events.out.tfevents.";

/// The records of a file's beginning: TensorBoard forgets what earlier files have from `first_step` on, which a resumed
/// run repeats.
std::string events_begin(double wall_time, int64_t first_step);
std::string event_record(double wall_time, int64_t step, const std::vector<base::Measured>& scalars);
/// A text, which TensorBoard's text page shows as Markdown.
std::string event_text_record(double wall_time, int64_t step, const std::string& tag, const std::string& text);

/// A file of its own in `folder` for each start of a run. Every step is one write. That of a resumed run is there when
/// it goes on, or with the first row: TensorBoard forgets later steps of earlier files then.
class EventWriter final : public Logger {
 public:
  /// Errors    FileError
  EventWriter(const std::filesystem::path& folder, int64_t resumed_step);
  void go_on() override;
  void append(const MetricsRow& row) override;
  /// `text` as it is, between lines of Markdown that keep its spaces and line ends.
  void append_text(int64_t step, const std::string& tag, const std::string& text);

 private:
  std::filesystem::path path_;
  base::FileDescriptor file_;
  std::optional<std::string> waiting_;  ///< records, while there is no file
};

}  // namespace trireme::observe
