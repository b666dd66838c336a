// Whether all ranks made their trainers alike. Ranks that disagree plan different lists: they would wait for calls that
// never come, or train with different rules and say nothing. Each rank describes its trainer by named values. The ranks
// compare hashes of these before they connect their groups.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/engine/trainer.h"

namespace trireme::engine {

/// Name and value, as text.
using NamedValues = std::vector<std::pair<std::string, std::string>>;

/// What must be equal on all ranks: the options except a rank's place, its backend and its folders, the parameters of
/// the model and, with pp or tp above 1, the example's shapes.
NamedValues describe_trainer(const TrainerOptions& options, const model::Model& model);

/// Every rank must call.
/// Cost      one gather of 8 bytes a value and rank
/// Errors    UsageError, on every rank: names the first rank that differs from rank 0, the value's name, and what it is
///           on this rank
void check_same(const NamedValues& mine, comm::Communicator& world);

}  // namespace trireme::engine
