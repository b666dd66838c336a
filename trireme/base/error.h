// The few kinds of exception that Trireme throws. Each message names the operation, the values, the rule and what to
// do; the command line prints it unchanged. Expected outcomes ("does not fit", "no checkpoint yet") are values, not
// exceptions.
#pragma once

#include <chrono>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace trireme {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Wrong flags, settings, files or environment, which the user can correct. The command line exits with 2.
struct UsageError : Error {
  using Error::Error;
};

/// What GPUs do not compute. Who named GPUs without accelerator cuda has another way out.
struct ProcessorsOnly : UsageError {
  ProcessorsOnly(const std::string& reason_, const std::string& way_out)
      : UsageError(reason_ + "; " + way_out), reason(reason_) {}
  std::string reason;  ///< "a Free Transformer computes on processors only"
};

/// Tensors whose shape or dtype breaks an operation's contract.
struct ShapeError : Error {
  using Error::Error;
};

/// A checkpoint that is damaged, unfinished or of another model. Exits with 2.
struct CheckpointError : Error {
  CheckpointError(const std::string& message, std::string path_, std::string tensor_ = "")
      : Error(message), path(std::move(path_)), tensor(std::move(tensor_)) {}
  std::string path;    ///< of the file or folder
  std::string tensor;  ///< its name, or empty
};

/// A checkpoint whose bytes are not those that were saved: files are missing, truncated or changed. An older checkpoint
/// may be good.
struct DamagedError : CheckpointError {
  using CheckpointError::CheckpointError;
};

/// A file that cannot be read, so that nothing is known about its contents.
struct UnreadableError : CheckpointError {
  using CheckpointError::CheckpointError;
};

/// A failed communication; `what()` says it in one sentence.
struct CommError : Error {
  struct Details {
    std::string operation;  ///< "reduce_scatter"
    std::string group;  ///< "shard"
    int global_rank = -1;  ///< the rank that reports
    int peer_rank = -1;  ///< global rank of the peer at fault, -1 if unknown
    std::chrono::milliseconds elapsed{0};
    std::chrono::milliseconds timeout{0};
  };
  CommError(const std::string& message, Details details_) : Error(message), details(std::move(details_)) {}
  Details details;
};

/// A bug in Trireme, with file and line.
struct InternalError : Error {
  explicit InternalError(const std::string& message, std::source_location where = std::source_location::current())
      : Error(message + " (internal error at " + where.file_name() + ":" + std::to_string(where.line()) +
              "; please report it)") {}
};

/// Throws InternalError with `rule` if `holds` is false; for invariants, never for user input.
inline void check_invariant(bool holds, std::string_view rule,
                            std::source_location where = std::source_location::current()) {
  if (!holds) throw InternalError("broken rule: " + std::string(rule), where);
}

}  // namespace trireme
