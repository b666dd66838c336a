// Events for TensorBoard: the numbers of metrics.jsonl as scalars.
//
// A file of events is a sequence of records (TensorFlow's TFRecord): length, its checksum, a protocol buffer `Event`,
// its checksum. Only the fields that scalars need are written. Source    tensorflow/core/util/event.proto,
// tensorflow/core/framework/summary.proto, tensorflow/core/lib/io/record_writer.h
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/files.h"
#include "trireme/observe/metrics.h"

namespace trireme::observe {

/// The start of the names of files of events.
inline constexpr std::string_view kEventsPrefix = "events.out.tfevents.";

struct Scalar {
  std::string tag;
  double value = 0;
};

/// The row's numbers by their names in metrics.jsonl, without those that say where the run is.
std::vector<Scalar> scalars_of(const MetricsRow& row);

/// The records of a file's beginning: TensorBoard forgets what earlier files have from `first_step` on, which a resumed
/// run repeats.
std::string events_begin(double wall_time, int64_t first_step);
std::string event_record(double wall_time, int64_t step, const std::vector<Scalar>& scalars);

/// A file of its own in `folder` for each start of a run. Every step is one write.
class EventWriter {
 public:
  /// Errors    FileError
  EventWriter(const std::filesystem::path& folder, int64_t resumed_step);
  void append(const MetricsRow& row);

 private:
  std::filesystem::path path_;
  base::FileDescriptor file_;
};

}  // namespace trireme::observe
