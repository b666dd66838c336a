// The data of a run: the same on all ranks, and the same as before if the run is resumed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/data/training_data.h"
#include "trireme/text/tokenizer.h"
#include "trireme/train/checkpointing.h"
#include "trireme/train/session.h"
#include "trireme/train/task.h"

namespace trireme::train {

/// Makes a resumed run hold out the same part of the data as before, and treat long conversations of tokenized sets as
/// before. If the settings leave a choice open, `options` get that of the run that wrote the checkpoint `resume`. A new
/// run has none.
/// Errors    CheckpointError
void keep_choices(data::TrainingDataOptions& options, const std::filesystem::path& resume);

/// The run's tokenizer. Every rank must call.
/// Errors    UsageError, the same on every rank, if a rank cannot read it
std::unique_ptr<text::Tokenizer> load_run_tokenizer(Session& session);

/// Loads the data that the settings name. If no tokens are cached, rank 0 tokenizes, and the others then read its
/// result. Every rank must call. `stops` is called once, after rank 0 has the data.
/// Errors    as require_same_data(); as checkpoint::agree(), the same on every rank, if a rank cannot load its data
data::TrainingData load_run_data(Session& session, const std::filesystem::path& resume,
                                 const text::Tokenizer& tokenizer, const StopCheck& stops);

/// Every rank must call, as soon as it has its data: the files may lie on each machine.
/// Cost      a gather of 8 bytes a rank
/// Errors    UsageError on every rank if they differ, with what differs on the first rank that has other data than
///           rank 0; `what` every machine should be given
void require_same_data(comm::Communicator& world, const data::DataIdentity& data, std::string_view what = "data");

/// The same for a run. What is held out is compared, too, but is no part of the identity that checkpoints keep.
///
/// @param held_out       how many samples
/// @param held_out_hash  of data that are no part of `data`; 0: there are none
void require_same_data(Session& session, data::DataIdentity data, int64_t held_out, uint64_t held_out_hash);
void require_same_data(Session& session, const data::TrainingData& data);

/// Puts the identity of `data` into `state`. The order of samples is a function of the data. So if the data changed
/// since the checkpoint, the number of samples taken means nothing, and the run begins at sample 0 of the new data.
///
/// @returns  what changed, as a line for the user; empty if nothing changed
/// Errors    UsageError if the data changed and data.on_change is refuse
std::string meet_data(const data::DataSettings& settings, const data::DataIdentity& data, RunState& state);

/// For --dry_run, which reads no data: refuses what settings alone show to be other data than the checkpoint `resume`
/// learned from.
///
/// @returns  nothing_to_do(), where the checkpoint is at the run's end; else empty
/// Errors    UsageError as meet_data(); CheckpointError
std::string foresee_resume(const Settings& settings, const std::filesystem::path& resume);

/// Puts the run's tokenizer beside the model, so that a checkpoint holds exactly the tokenizer that it was trained
/// with.
void keep_tokenizer(const Session& session, RunState& state);

/// Generation with the saved model stops at the token `id`, too (text/ends_of_text.h). Call it after keep_tokenizer().
void stop_at(const Session& session, const text::Tokenizer& tokenizer, int32_t id, RunState& state);

/// A model that learns texts writes the token between two of them where a text ends (data.append_eos). If that is a
/// special token, generation stops there: stop_at().
void stop_between_texts(const Session& session, const text::Tokenizer& tokenizer, RunState& state);

}  // namespace trireme::train
