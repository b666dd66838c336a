// A communicator that talks to nobody: of any rank and world size for planning and --simulate, and the free one
// of a group of size 1. Works are complete at once; an output receives what this rank itself contributes (its own
// slice of a gather, its own term of a sum), the rest stays as it was.
#pragma once

#include "trireme/comm/group.h"

namespace trireme::comm {

/// `backend` is the name it reports: "dry_run", or "local" for a group of one.
CommunicatorPtr make_dry_run(Group group, std::string backend);

}  // namespace trireme::comm
