// LedgerFile: out_dir/ledger/rank<N>.jsonl, a line for each micro-batch that the rank loaded for training
// (data.ledger).
#pragma once

#include <filesystem>

#include "trireme/base/files.h"
#include "trireme/data/batch_loader.h"

namespace trireme::train {

class LedgerFile {
 public:
  /// Appends to the rank's file.
  /// Errors    FileError if it cannot be made
  LedgerFile(const std::filesystem::path& out_dir, int global_rank);

  /// {"step": 3, "micro_batch": 0, "checksum": "...", "samples": [...]}; the checksum is of inputs and targets. A line
  /// is usually written at once, so a killed process leaves whole lines. Errors    FileError, with the system's reason
  void write(int64_t step, const data::Batch& batch, const data::SampleStream& samples);

 private:
  std::filesystem::path path_;
  base::FileDescriptor file_;
};

}  // namespace trireme::train
