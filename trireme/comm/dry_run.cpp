#include "trireme/comm/dry_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "trireme/comm/checked_communicator.h"
#include "trireme/comm/exchange.h"
#include "trireme/comm/mapping.h"

namespace trireme::comm {

namespace {

class DryRunCommunicator final : public CheckedCommunicator {
 public:
  DryRunCommunicator(Group group, std::string backend)
      : CheckedCommunicator(std::move(group)), backend_(std::move(backend)) {}

  std::string backend() const override { return backend_; }

  SharedBuffer allocate_shared(int64_t bytes, bool host_shared) override {
    const int64_t rounded = whole_pages(bytes);
    mappings_.push_back(Mapping::create_private(
        rounded, rounded, fmt::format("allocate_shared of group '{}' on {}", name(), name_rank(group(), rank()))));
    void* mine = mappings_.back()->data();
    // With one rank, its memory is the memory of all.
    return {.mine = mine, .parts = {mine}, .host_shared = host_shared && size() == 1};
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
  std::vector<std::shared_ptr<Mapping>> mappings_;
};

}  // namespace

CommunicatorPtr make_dry_run(Group group, std::string backend) {
  return std::make_shared<DryRunCommunicator>(std::move(group), std::move(backend));
}

}  // namespace trireme::comm
