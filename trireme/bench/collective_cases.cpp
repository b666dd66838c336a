#include "trireme/bench/collective_cases.h"

#include <ATen/ATen.h>

namespace trireme::bench {
namespace {

using comm::CommunicatorPtr;

at::Tensor own(int64_t elements, double value) { return at::full({elements}, value, at::kFloat); }

at::Tensor shared(const CommunicatorPtr& comm, int64_t elements, bool one_for_all) {
  const comm::SharedBuffer buffer = comm->allocate_shared(elements * 4, one_for_all);
  return at::from_blob(buffer.mine, {elements}, at::kFloat);
}

int64_t elements_of(int64_t bytes) { return bytes / 4; }
double mine(const CommunicatorPtr& comm) { return comm->rank() + 1.0; }
double sum_of(const CommunicatorPtr& comm) { return comm->size() * (comm->size() + 1) / 2.0; }

std::vector<int64_t> slices(const CommunicatorPtr& comm, int64_t elements) {
  std::vector<int64_t> counts(comm->size(), elements / comm->size());
  counts.back() += elements % comm->size();
  return counts;
}

int64_t own_slice(const CommunicatorPtr& comm, const std::vector<int64_t>& counts) { return counts[comm->rank()]; }

bool all_equal(const at::Tensor& t, double value) { return t.eq(value).all().item<bool>(); }

// Slice k holds the number k + 1.
bool holds_ranks(const at::Tensor& t, const std::vector<int64_t>& counts) {
  int64_t first = 0;
  for (size_t k = 0; k < counts.size(); ++k) {
    if (!all_equal(t.narrow(0, first, counts[k]), static_cast<double>(k + 1))) return false;
    first += counts[k];
  }
  return true;
}

// In place if the buffer is shared. Then the sum would grow with each call, so the check sets the input to zero.
CollectiveCall all_reduce(const CommunicatorPtr& comm, const at::Tensor& out, const at::Tensor& in) {
  in.fill_(mine(comm));
  return {[=] { comm->all_reduce(out, in, {})->wait(); },
          [=] {
            const bool right = all_equal(out, sum_of(comm));
            in.zero_();
            return right;
          }};
}

CollectiveCall reduce_scatter(const CommunicatorPtr& comm, const at::Tensor& in) {
  const std::vector<int64_t> counts = slices(comm, in.numel());
  const at::Tensor out = own(own_slice(comm, counts), 0);
  in.fill_(mine(comm));
  return {[=] { comm->reduce_scatter(out, in, counts, {})->wait(); }, [=] { return all_equal(out, sum_of(comm)); }};
}

CollectiveCall all_gather(const CommunicatorPtr& comm, const at::Tensor& out) {
  const std::vector<int64_t> counts = slices(comm, out.numel());
  const at::Tensor in = own(own_slice(comm, counts), mine(comm));
  return {[=] { comm->all_gather(out, in, counts)->wait(); }, [=] { return holds_ranks(out, counts); }};
}

CollectiveCall broadcast(const CommunicatorPtr& comm, int64_t bytes) {
  const at::Tensor t = own(elements_of(bytes), mine(comm));
  return {[=] { comm->broadcast(t, 0)->wait(); }, [=] { return all_equal(t, 1); }};
}

CollectiveCall reduce(const CommunicatorPtr& comm, int64_t bytes) {
  const at::Tensor out = own(elements_of(bytes), 0), in = own(elements_of(bytes), mine(comm));
  return {[=] { comm->reduce(out, in, 0, {})->wait(); },
          [=] { return comm->rank() != 0 || all_equal(out, sum_of(comm)); }};
}

CollectiveCall gather(const CommunicatorPtr& comm, int64_t bytes) {
  const std::vector<int64_t> counts = slices(comm, elements_of(bytes));
  const at::Tensor out = own(elements_of(bytes), 0), in = own(own_slice(comm, counts), mine(comm));
  return {[=] { comm->gather(out, in, counts, 0)->wait(); },
          [=] { return comm->rank() != 0 || holds_ranks(out, counts); }};
}

CollectiveCall scatter(const CommunicatorPtr& comm, int64_t bytes) {
  const std::vector<int64_t> counts = slices(comm, elements_of(bytes));
  const at::Tensor out = own(own_slice(comm, counts), 0), in = own(elements_of(bytes), 7);
  return {[=] { comm->scatter(out, in, counts, 0)->wait(); }, [=] { return all_equal(out, 7); }};
}

CollectiveCall all_to_all(const CommunicatorPtr& comm, int64_t bytes) {
  const int64_t each = elements_of(bytes) / comm->size();
  const std::vector<int64_t> counts(comm->size(), each);
  const at::Tensor in = own(each * comm->size(), mine(comm)), out = own(each * comm->size(), 0);
  return {[=] { comm->all_to_all(out, in, counts, counts)->wait(); }, [=] { return holds_ranks(out, counts); }};
}

// Every rank sends to the next one in a ring.
CollectiveCall send_receive(const CommunicatorPtr& comm, int64_t bytes) {
  const at::Tensor out = own(elements_of(bytes), 0), in = own(elements_of(bytes), mine(comm));
  const int next = (comm->rank() + 1) % comm->size(), previous = (comm->rank() + comm->size() - 1) % comm->size();
  return {[=] {
            const comm::WorkPtr sent = comm->send(in, next), received = comm->receive(out, previous);
            received->wait();
            sent->wait();
          },
          [=] { return all_equal(out, previous + 1.0); }};
}

double whole(double) { return 1; }
double others(double n) { return (n - 1) / n; }

constexpr CollectiveCase kCollectiveCases[] = {
    {"all_reduce", Buffers::own, [](double n) { return 2 * (n - 1) / n; }, [](double) { return 2.0; },
     [](const CommunicatorPtr& c, int64_t bytes) {
       const int64_t n = elements_of(bytes);
       return all_reduce(c, own(n, 0), own(n, 0));
     }},
    {"all_reduce", Buffers::shared, [](double n) { return 2 * (n - 1) / n; }, [](double) { return 2.0; },
     [](const CommunicatorPtr& c, int64_t bytes) {
       const at::Tensor t = shared(c, elements_of(bytes), false);
       return all_reduce(c, t, t);
     }},
    {"reduce_scatter", Buffers::own, others, [](double n) { return 1 + 1 / n; },
     [](const CommunicatorPtr& c, int64_t bytes) { return reduce_scatter(c, own(elements_of(bytes), 0)); }},
    {"reduce_scatter", Buffers::shared, others, [](double n) { return 1 + 1 / n; },
     [](const CommunicatorPtr& c, int64_t bytes) { return reduce_scatter(c, shared(c, elements_of(bytes), false)); }},
    {"all_gather", Buffers::own, others, [](double) { return 2.0; },
     [](const CommunicatorPtr& c, int64_t bytes) { return all_gather(c, own(elements_of(bytes), 0)); }},
    {"all_gather", Buffers::shared, others, [](double n) { return 2 / n; },
     [](const CommunicatorPtr& c, int64_t bytes) { return all_gather(c, shared(c, elements_of(bytes), true)); }},
    {"broadcast", Buffers::own, whole, [](double) { return 2.0; }, broadcast},
    {"reduce", Buffers::own, whole, [](double n) { return 1 + 1 / n; }, reduce},
    {"gather", Buffers::own, others, [](double) { return 2.0; }, gather},
    {"scatter", Buffers::own, others, [](double n) { return 2 / n; }, scatter},
    {"all_to_all", Buffers::own, others, [](double) { return 2.0; }, all_to_all},
    {"send_receive", Buffers::own, whole, [](double) { return 2.0; }, send_receive},
};

}  // namespace

std::span<const CollectiveCase> collective_cases() { return kCollectiveCases; }

}  // namespace trireme::bench
