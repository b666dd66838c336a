// What a rank tells its launcher: where it is, and why it is about to end.
//
// The launcher's headline is the first failure. Exit codes alone cannot tell it apart from what followed: a rank
// whose peer died also ends with an error, sometimes sooner. So a rank says so itself. Without a launcher these
// calls do nothing, and they never block a healthy rank, never throw and never raise a signal.
#pragma once

#include <string_view>

#include "trireme/base/error.h"

namespace trireme::launch {

/// Says where this rank is, "step 812"; the latest text appears in the headline if this rank fails.
///
/// Cost      one non-blocking send, about a microsecond; dropped when the launcher is behind
void report_status(std::string_view text) noexcept;

/// Tells it that this process is up, so that others may start: a machine loads only so many at once.
void report_loaded() noexcept;

/// Tells it that from now on a stop has something to save: until all ranks have said so, it waits for none of them.
void report_begun() noexcept;

/// Whose fault a rank's end is.
enum class Fault {
  own,
  lost_peer,  ///< another rank is gone (a CommError): the headline only if no rank has failed by itself
  timeout,    ///< another rank has not come in time: the launcher looks what that one does (hang.h)
};

/// Whose fault a failed communication is: a rank's that did not come in time, or that is gone. Calls that do not match
/// are what went wrong itself (own): peers in other groups lose the connection before this rank has ended.
Fault fault_of(const CommError& error);

/// Lets the lines of this process begin with "rank 2: " where a launcher that is not ours shows all ranks on one
/// screen.
void name_rank_in_log() noexcept;

/// Says why this rank is about to exit with an error, in the words that the user shall read.
void report_failure(std::string_view message, Fault fault = Fault::own) noexcept;

}  // namespace trireme::launch
