// What must never be a hang, for every backend of thread ranks with tensors in host memory.
#include "failure_suite.h"

namespace trireme::comm::testing {
namespace {

constexpr FailingBackend kBackends[] = {{"threads"}, {"shm"}, {"gloo"}, {kSealedGloo}};

INSTANTIATE_TEST_SUITE_P(Communicator, Failure, ::testing::ValuesIn(kBackends),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace trireme::comm::testing
