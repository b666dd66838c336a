#include "trireme/comm/dry_run.h"

#include <limits>

#include "trireme/comm/checked_communicator.h"
#include "trireme/comm/exchange.h"

namespace trireme::comm {
namespace {
class DryRunCommunicator final : public CheckedCommunicator {
 public:
  DryRunCommunicator(Group group, std::string backend)
      : CheckedCommunicator(std::move(group)), backend_(std::move(backend)) {}

  std::string backend() const override { return backend_; }

  SharedBuffer allocate_shared(int64_t bytes, bool host_shared) override {
    SharedBuffer buffer = allocate_private(bytes);
    buffer.host_shared = host_shared && size() == 1;
    return buffer;
  }

 protected:
  WorkPtr start(Call call) override {
    constexpr int64_t kAlwaysWhole = std::numeric_limits<int64_t>::max();
    for (const Exchange& phase : plan_exchanges(call.collective, rank(), size(), {}, kAlwaysWhole))
      exchange_with_self(phase, rank());
    finished(call);
    return completed_work();
  }

 private:
  std::string backend_;
};
}  // namespace

CommunicatorPtr make_dry_run(Group group, std::string backend) {
  return std::make_shared<DryRunCommunicator>(std::move(group), std::move(backend));
}

}  // namespace trireme::comm
