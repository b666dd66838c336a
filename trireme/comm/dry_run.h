// A communicator without peers. It serves planning and --simulate with any rank and world size, and groups of one rank.
// Every Work is complete at once. An output receives this rank's own contribution (its slice of a gather, its term of a
// sum); the rest of the output stays unchanged.
#pragma once

#include "trireme/comm/group.h"

namespace trireme::comm {

/// `backend` is the name that backend() returns: "dry_run", or "local" for a group of one.
CommunicatorPtr make_dry_run(Group group, std::string backend);

}  // namespace trireme::comm
