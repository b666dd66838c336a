#include "trireme/checkpoint/save.h"

#include "trireme/checkpoint/save_job.h"

namespace trireme::checkpoint {

SaveResult save_checkpoint(const SaveRequest& request, comm::Communicator& world) {
  return SaveJob(request, world, {.background = false}).finish();
}

}  // namespace trireme::checkpoint
