// Whether the ranks of a job were given the same settings. Ranks of several launchers have theirs from several command
// lines, environments and files. With other settings than the rest, a rank would train another model without a word, or
// the others would wait for it.
//
// Rank 0 leaves its settings in the job's store. Every other rank compares its own with them before it says that it has
// come. So a job with a difference is never complete. The rank that sees one leaves the sentence in the store, and all
// ranks end with it. Ranks that meet through MPI have no store; they compare theirs in train/ranks.h.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "trireme/launch/identity/environment.h"
#include "trireme/settings/settings.h"
#include "trireme/store/client.h"

namespace trireme::launch {

constexpr std::chrono::milliseconds kLookForRefusal{500};  ///< while a rank waits for others
constexpr std::chrono::seconds kTimeToTell{5};  ///< that a rank which ends waits for others to hear it

/// What must be alike on all ranks, as JSON of keys and values. Left out are launch.*, places, and what one rank alone
/// or each machine for itself decides. A file may lie elsewhere on each machine, so only whether it is given counts.
/// For precision auto the value is what it means on this machine.
std::string common_settings(const Settings& settings, const RankEnvironment& environment);

/// The same for the launchers of machines that meet (rendezvous.h), with the number of ranks that each starts.
std::string common_settings_of_machines(const Settings& settings);

/// What a rank has unlike rank 0, of two objects of JSON: "optimizer.lr 0.002, rank 0 has 0.001"; "" if nothing. Keys
/// that only one of the two has are another version's, and are passed over.
std::string difference(const std::string& own, const std::string& of_rank_0);

/// The name of this machine in refusals.
std::string machine_name();

/// Why a rank or a machine is refused: "rank 1 (host-b) has optimizer.lr 0.002, rank 0 has 0.001; start every machine
/// with the same settings".
/// @param unlike  what difference() says
std::string refusal_of(const std::string& who, const std::string& unlike);
/// "rank 1 (host-b)".
std::string name_of_rank(int rank, const std::string& machine);

/// That these ranks have not come within `limit` (launch.join_timeout), and what to do.
std::string not_come(const std::vector<int>& late, std::chrono::milliseconds limit, const RankEnvironment& environment);

/// Every rank calls it with its common_settings() before it says that it has come. `look` is called while this rank
/// waits for rank 0's.
/// Errors    UsageError if this rank's are others; the other ranks have it from end_if_one_is_refused(). Error with
///           not_come() if rank 0 does not tell its own within `limit`
void require_same_settings(store::Client& client, const RankEnvironment& environment, const std::string& own,
                           std::chrono::milliseconds limit, const std::function<void()>& look);

/// Leaves the reason why this rank ends for the others, unless one of them has left another. Waits until all ranks
/// know, or have had their time.
/// @param exit_code  of this rank (base/files.h), and so of all
void tell_all(store::Client& client, const RankEnvironment& environment, const std::string& why, int exit_code);

/// Call it while this rank waits for others. Errors    the reason, once a rank has told it, of the kind that has its
/// exit code: UsageError, FileError for storage that failed, Error
void end_if_one_is_refused(store::Client& client, const RankEnvironment& environment);

}  // namespace trireme::launch
