#include "comm_checks.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <numeric>
#include <stdexcept>

#include "tensor_device.h"
#include "trireme/base/error.h"
#include "trireme/comm/collective.h"

namespace trireme::comm::testing {

namespace {

using Counts = std::vector<int64_t>;

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

void require_equal(const at::Tensor& got, const at::Tensor& want, const std::string& what) {
  const at::Tensor actual = got.cpu(), expected = want.cpu();
  require(actual.scalar_type() == expected.scalar_type(), what + ": dtype");
  require(actual.sizes() == expected.sizes(), what + ": shape");
  if (at::equal(actual, expected)) return;
  const auto where = (actual.view({-1}) != expected.view({-1})).nonzero();
  const int64_t i = where[0].item<int64_t>();
  throw std::runtime_error(fmt::format("{}: {} elements differ, the first is [{}]: {} instead of {}", what,
                                       where.size(0), i, actual.view({-1})[i].item<double>(),
                                       expected.view({-1})[i].item<double>()));
}

constexpr at::ScalarType kDtypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf,
                                      at::kLong,  at::kInt,    at::kByte};

// Small integers that differ by rank and place, exact in every dtype, as are their sums.
at::Tensor data(int64_t n, int rank, at::ScalarType dtype, int64_t salt = 0) {
  constexpr int64_t kPeriod = 11;
  const at::Tensor period = (at::arange(kPeriod) * 3 + (rank * 5 + salt) % 97).remainder(kPeriod);
  const at::Tensor numbers = (dtype == at::kByte ? period : period - 5).to(tensor_device, dtype);
  return numbers.repeat({n / kPeriod + 1}).narrow(0, 0, n);
}

at::Tensor zeros(int64_t n, at::ScalarType dtype) { return at::zeros({n}, at::device(tensor_device).dtype(dtype)); }

int64_t sum(const Counts& c) { return std::accumulate(c.begin(), c.end(), int64_t{0}); }
int64_t before(const Counts& c, int rank) { return std::accumulate(c.begin(), c.begin() + rank, int64_t{0}); }

// Even, uneven, with empty ranks, all empty.
std::vector<Counts> count_patterns(int size) {
  std::vector<Counts> patterns(5, Counts(size));
  for (int k = 0; k < size; ++k) {
    patterns[0][k] = 64;
    patterns[1][k] = 1000 + 37 * k;
    patterns[2][k] = k % 2 == 0 ? 0 : 4097;
    patterns[3][k] = k == size - 1 ? 150'001 : 5;  // several rounds of staging
    patterns[4][k] = 0;
  }
  return patterns;
}

// The fold that the contract defines, by ATen on the CPU, one rank after the other.
at::Tensor reference_fold(const std::vector<at::Tensor>& terms, at::ScalarType dtype, ReduceOp op,
                          const at::Tensor& base = {}) {
  at::Tensor acc = base.defined() ? base.cpu().clone() : terms[0].cpu().to(dtype);
  for (size_t k = base.defined() ? 0 : 1; k < terms.size(); ++k) {
    const at::Tensor term = terms[k].cpu().to(dtype);
    acc = op == ReduceOp::sum ? (acc + term).to(dtype) : at::maximum(acc, term);
  }
  return acc;
}

std::vector<at::Tensor> terms(int size, int64_t n, at::ScalarType dtype, int64_t salt = 0) {
  std::vector<at::Tensor> all;
  for (int k = 0; k < size; ++k) all.push_back(data(n, k, dtype, salt));
  return all;
}

void all_gather(Communicator& c) {
  for (const auto dtype : kDtypes) {
    for (const Counts& counts : count_patterns(c.size())) {
      std::vector<at::Tensor> parts;
      for (int k = 0; k < c.size(); ++k) parts.push_back(data(counts[k], k, dtype));
      const at::Tensor expected = at::cat(parts);
      at::Tensor output = zeros(sum(counts), dtype);
      c.all_gather(output, parts[c.rank()], counts)->wait();
      require_equal(output, expected, fmt::format("all_gather {}", dtype_name(dtype)));

      output = zeros(sum(counts), dtype);
      at::Tensor mine = output.narrow(0, before(counts, c.rank()), counts[c.rank()]);
      mine.copy_(parts[c.rank()]);
      c.all_gather(output, mine, counts)->wait();
      require_equal(output, expected, fmt::format("all_gather in place {}", dtype_name(dtype)));
    }
  }
}

void reduce_scatter(Communicator& c) {
  for (const auto dtype : kDtypes) {
    for (const Counts& counts : count_patterns(c.size())) {
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
        const auto inputs = terms(c.size(), sum(counts), dtype);
        const at::Tensor expected =
            reference_fold(inputs, dtype, op).narrow(0, before(counts, c.rank()), counts[c.rank()]);
        at::Tensor output = zeros(counts[c.rank()], dtype);
        c.reduce_scatter(output, inputs[c.rank()], counts, {.op = op})->wait();
        require_equal(output, expected, fmt::format("reduce_scatter {}", dtype_name(dtype)));
      }
    }
  }
}

void reduce_scatter_accumulates(Communicator& c) {
  const std::pair<at::ScalarType, at::ScalarType> kinds[] = {
      {at::kFloat, at::kFloat}, {at::kBFloat16, at::kFloat}, {at::kHalf, at::kFloat}, {at::kDouble, at::kDouble}};
  for (const auto& [in, out] : kinds) {
    for (const Counts& counts : count_patterns(c.size())) {
      at::Tensor output = data(counts[c.rank()], c.rank(), out, 3), expected = output.clone();
      for (int micro_batch = 0; micro_batch < 3; ++micro_batch) {
        const auto inputs = terms(c.size(), sum(counts), in, micro_batch);
        std::vector<at::Tensor> mine;
        for (const auto& t : inputs) mine.push_back(t.narrow(0, before(counts, c.rank()), counts[c.rank()]));
        expected = reference_fold(mine, out, ReduceOp::sum, expected);
        c.reduce_scatter(output, inputs[c.rank()], counts, {.accumulate = true})->wait();
      }
      require_equal(output, expected, fmt::format("accumulating {} into {}", dtype_name(in), dtype_name(out)));
    }
  }
}

void all_reduce(Communicator& c) {
  for (const auto dtype : kDtypes) {
    for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{4099}, int64_t{200'003}}) {
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
        const auto inputs = terms(c.size(), n, dtype);
        const at::Tensor expected = reference_fold(inputs, dtype, op);
        at::Tensor output = zeros(n, dtype);
        c.all_reduce(output, inputs[c.rank()], {.op = op})->wait();
        require_equal(output, expected, fmt::format("all_reduce {}[{}]", dtype_name(dtype), n));
        at::Tensor both = inputs[c.rank()].clone();
        c.all_reduce(both, both, {.op = op})->wait();
        require_equal(both, expected, fmt::format("all_reduce in place {}[{}]", dtype_name(dtype), n));
      }
    }
  }
  // Each rank adds to what its own output holds, which may differ between ranks.
  for (const int64_t n : {int64_t{10}, int64_t{200'003}}) {
    const auto inputs = terms(c.size(), n, at::kBFloat16);
    at::Tensor output = data(n, c.rank(), at::kFloat, 50);
    const at::Tensor expected = reference_fold(inputs, at::kFloat, ReduceOp::sum, output);
    c.all_reduce(output, inputs[c.rank()], {.accumulate = true})->wait();
    require_equal(output, expected, "all_reduce accumulating bfloat16 into float32");
  }
}

void broadcast(Communicator& c) {
  for (const auto dtype : kDtypes) {
    for (const int64_t n : {int64_t{0}, int64_t{7}, int64_t{400'001}}) {
      for (int root = 0; root < c.size(); ++root) {
        if (n > 100 && dtype != at::kFloat && dtype != at::kByte) continue;
        const at::Tensor expected = data(n, root, dtype);
        at::Tensor t = c.rank() == root ? expected.clone() : zeros(n, dtype);
        c.broadcast(t, root)->wait();
        require_equal(t, expected, fmt::format("broadcast {}[{}] from {}", dtype_name(dtype), n, root));
      }
    }
  }
  at::Tensor flags = zeros(5, at::kBool).fill_(c.rank() == 0);
  c.broadcast(flags, 0)->wait();
  require_equal(flags, at::ones({5}, at::kBool), "broadcast of bool");
}

void reduce(Communicator& c) {
  for (const int64_t n : {int64_t{0}, int64_t{9}, int64_t{300'001}}) {
    for (int root = 0; root < c.size(); ++root) {
      const auto inputs = terms(c.size(), n, at::kBFloat16, root);
      at::Tensor output = c.rank() == root ? zeros(n, at::kFloat) : at::Tensor();
      c.reduce(output, inputs[c.rank()], root, {})->wait();
      if (c.rank() == root)
        require_equal(output, reference_fold(inputs, at::kFloat, ReduceOp::sum), fmt::format("reduce to {}", root));
      at::Tensor both = inputs[c.rank()].clone();
      c.reduce(both, both, root, {.op = ReduceOp::max})->wait();
      const at::Tensor expected =
          c.rank() == root ? reference_fold(inputs, at::kBFloat16, ReduceOp::max) : inputs[c.rank()];
      require_equal(both, expected, fmt::format("reduce in place to {}", root));
    }
  }
}

void gather_and_scatter(Communicator& c) {
  for (const auto dtype : {at::kFloat, at::kByte, at::kLong}) {
    for (const Counts& counts : count_patterns(c.size())) {
      for (int root = 0; root < c.size(); ++root) {
        std::vector<at::Tensor> parts;
        for (int k = 0; k < c.size(); ++k) parts.push_back(data(counts[k], k, dtype, root));
        const at::Tensor whole = at::cat(parts);
        at::Tensor gathered = c.rank() == root ? zeros(sum(counts), dtype) : at::Tensor();
        c.gather(gathered, parts[c.rank()], counts, root)->wait();
        if (c.rank() == root) require_equal(gathered, whole, fmt::format("gather to {}", root));
        at::Tensor slice = zeros(counts[c.rank()], dtype);
        c.scatter(slice, c.rank() == root ? whole : at::Tensor(), counts, root)->wait();
        require_equal(slice, parts[c.rank()], fmt::format("scatter from {}", root));
      }
    }
  }
}

void all_to_all(Communicator& c) {
  const auto pair_count = [](int from, int to, int64_t unit) { return (from * 3 + to * 2) % 4 * unit; };
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kByte}) {
    for (const int64_t unit : {int64_t{0}, int64_t{5}, int64_t{60'001}}) {
      Counts in(c.size()), out(c.size());
      std::vector<at::Tensor> sent, expected;
      for (int k = 0; k < c.size(); ++k) {
        in[k] = pair_count(c.rank(), k, unit);
        out[k] = pair_count(k, c.rank(), unit);
        sent.push_back(data(in[k], c.rank(), dtype, 10 * k));
        expected.push_back(data(out[k], k, dtype, 10 * c.rank()));
      }
      at::Tensor output = zeros(sum(out), dtype);
      c.all_to_all(output, at::cat(sent), out, in)->wait();
      require_equal(output, at::cat(expected), fmt::format("all_to_all {} x {}", dtype_name(dtype), unit));
    }
  }
}

void messages(Communicator& c) {
  const int next = (c.rank() + 1) % c.size(), previous = (c.rank() + c.size() - 1) % c.size();
  std::vector<WorkPtr> works;
  std::vector<at::Tensor> received, expected;
  // All posted before any is waited for, and more bytes than a mailbox holds in both directions at once.
  for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{100}, int64_t{700'003}, int64_t{3}}) {
    for (const auto dtype : {at::kFloat, at::kByte}) {
      works.push_back(c.send(data(n, c.rank(), dtype, n), next));
      received.push_back(zeros(n, dtype));
      expected.push_back(data(n, previous, dtype, n));
      works.push_back(c.receive(received.back(), previous));
    }
  }
  for (const auto& work : works) work->wait();
  for (size_t i = 0; i < received.size(); ++i) require_equal(received[i], expected[i], fmt::format("message {}", i));
}

void barrier(Communicator& c) {
  for (int i = 0; i < 50; ++i) c.barrier()->wait();
  // Nobody leaves before everybody came: a message sent before the barrier is on its way, one after is not waited for.
  const auto work = c.barrier();
  while (!work->poll()) {
  }
}

void many_in_flight(Communicator& c) {
  constexpr int kCalls = 150;  // more than a segment's ring of descriptors
  const Counts counts(c.size(), 100);
  std::vector<at::Tensor> outputs;
  std::vector<WorkPtr> works;
  for (int i = 0; i < kCalls; ++i) {
    if (i % 3 == 0) {
      outputs.push_back(zeros(100 * c.size(), at::kFloat));
      works.push_back(c.all_gather(outputs.back(), data(100, c.rank(), at::kFloat, i), counts));
    } else if (i % 3 == 1) {
      outputs.push_back(zeros(100, at::kFloat));
      works.push_back(c.reduce_scatter(outputs.back(), data(100 * c.size(), c.rank(), at::kBFloat16, i), counts, {}));
    } else {
      outputs.push_back(zeros(30'000, at::kLong));
      works.push_back(c.all_reduce(outputs.back(), data(30'000, c.rank(), at::kLong, i), {}));
    }
    c.progress();
  }
  works.back()->wait();
  outputs.back().cpu();  // on a GPU it is only this that waits for the end
  for (const auto& work : works) require(work->poll(), "works complete in the order of the calls");
  for (int i = 0; i < kCalls; ++i) {
    at::Tensor expected;
    if (i % 3 == 0) {
      std::vector<at::Tensor> parts;
      for (int k = 0; k < c.size(); ++k) parts.push_back(data(100, k, at::kFloat, i));
      expected = at::cat(parts);
    } else if (i % 3 == 1) {
      expected = reference_fold(terms(c.size(), 100 * c.size(), at::kBFloat16, i), at::kFloat, ReduceOp::sum)
                     .narrow(0, 100 * c.rank(), 100);
    } else {
      expected = reference_fold(terms(c.size(), 30'000, at::kLong, i), at::kLong, ReduceOp::sum);
    }
    require_equal(outputs[i], expected, fmt::format("call {} of many", i));
  }
}

at::Tensor over(void* memory, int64_t n, at::ScalarType dtype) {
  return at::from_blob(memory, {n}, at::device(tensor_device).dtype(dtype));
}

void shared_buffers(Communicator& c) {
  const int64_t n = 50'000 * c.size();
  const Counts counts(c.size(), 50'000);
  SharedBuffer symmetric = c.allocate_shared(n * 4, false), host = c.allocate_shared(n * 4, true);
  for (const SharedBuffer& b : {symmetric, host}) {
    require(reinterpret_cast<uintptr_t>(b.mine) % 4096 == 0, "shared memory is aligned to pages");
    require(over(b.mine, n, at::kFloat).count_nonzero().item<int64_t>() == 0, "shared memory begins as zeros");
  }
  c.barrier()->wait();
  at::Tensor slot = over(symmetric.mine, n, at::kFloat), copy = over(host.mine, n, at::kFloat);
  at::Tensor shard = zeros(50'000, at::kFloat), expected = shard.clone();
  for (int step = 0; step < 5; ++step) {
    const auto inputs = terms(c.size(), n, at::kFloat, step);
    slot.copy_(inputs[c.rank()]);
    c.reduce_scatter(shard, slot, counts, {.accumulate = true})->wait();
    slot.fill_(-1000);  // free to be overwritten as soon as the work is complete
    std::vector<at::Tensor> mine;
    for (const auto& t : inputs) mine.push_back(t.narrow(0, 50'000 * c.rank(), 50'000));
    expected = reference_fold(mine, at::kFloat, ReduceOp::sum, expected);
    require_equal(shard, expected, fmt::format("reduce_scatter from symmetric memory, step {}", step));

    c.all_gather(copy, shard, counts)->wait();
    std::vector<at::Tensor> all(c.size());
    for (int k = 0; k < c.size(); ++k) all[k] = zeros(50'000, at::kFloat);
    at::Tensor gathered = zeros(n, at::kFloat);
    c.all_gather(gathered, shard, counts)->wait();
    require_equal(copy, gathered, fmt::format("all_gather into host_shared memory, step {}", step));
  }
  // In place on symmetric memory, small and large, and a sub-range at another offset.
  for (const int64_t m : {int64_t{500}, int64_t{40'000}}) {
    at::Tensor part = slot.narrow(0, 128, m);
    part.copy_(data(m, c.rank(), at::kFloat));
    c.all_reduce(part, part, {})->wait();
    require_equal(part, reference_fold(terms(c.size(), m, at::kFloat), at::kFloat, ReduceOp::sum),
                  "all_reduce in place on symmetric memory");
  }
  // From one place in symmetric memory to another: the results are written by all ranks, each its slice.
  for (const int64_t m : {int64_t{500}, int64_t{20'001}}) {
    at::Tensor from = slot.narrow(0, 3 + c.rank(), m), to = slot.narrow(0, 25'000 - c.rank(), m);
    from.copy_(data(m, c.rank(), at::kFloat, 7));
    to.fill_(-1);
    c.all_reduce(to, from, {})->wait();
    require_equal(to, reference_fold(terms(c.size(), m, at::kFloat, 7), at::kFloat, ReduceOp::sum),
                  "all_reduce between symmetric memories");
    require_equal(from, data(m, c.rank(), at::kFloat, 7), "the input of an all_reduce");
  }
  // On top of what one copy for all holds: each rank adds its slice, and nobody adds twice.
  for (const int64_t m : {int64_t{500}, int64_t{20'001}}) {
    const at::Tensor from = slot.narrow(0, 3, m), to = copy.narrow(0, 64, m);
    at::Tensor sums = zeros(m, at::kFloat);
    for (int step = 0; step < 4; ++step) {
      const auto inputs = terms(c.size(), m, at::kFloat, 20 + step);
      at::Tensor(from).copy_(inputs[c.rank()]);
      c.all_reduce(to, from, {.accumulate = step > 0})->wait();
      sums = reference_fold(inputs, at::kFloat, ReduceOp::sum, step > 0 ? sums : at::Tensor());
      require_equal(to, sums, fmt::format("all_reduce into host_shared memory, step {}", step));
    }
  }
  // bf16 gradients in symmetric memory, summed in fp32; each rank at an offset of its own.
  at::Tensor half = over(static_cast<std::byte*>(symmetric.mine) + 256 * c.rank(), 20'000, at::kBFloat16);
  half.copy_(data(20'000, c.rank(), at::kBFloat16));
  at::Tensor total = zeros(20'000, at::kFloat);
  c.all_reduce(total, half, {})->wait();
  require_equal(total, reference_fold(terms(c.size(), 20'000, at::kBFloat16), at::kFloat, ReduceOp::sum),
                "all_reduce of bfloat16 in symmetric memory");
  // One rank's tensor is private: everyone falls back to staging.
  at::Tensor mixed = c.rank() == 0 ? zeros(20'000, at::kBFloat16) : half;
  mixed.copy_(data(20'000, c.rank(), at::kBFloat16, 1));
  c.all_reduce(total, mixed, {})->wait();
  require_equal(total, reference_fold(terms(c.size(), 20'000, at::kBFloat16, 1), at::kFloat, ReduceOp::sum),
                "all_reduce with one private input");
  c.barrier()->wait();
  at::Tensor weights = copy.narrow(0, 0, 1000);
  if (c.rank() == c.size() - 1) weights.copy_(data(1000, 42, at::kFloat));
  c.broadcast(weights, c.size() - 1)->wait();
  require_equal(weights, data(1000, 42, at::kFloat), "broadcast in host_shared memory");
  c.barrier()->wait();
}

void fold_is_ordered(Communicator& c) {
  // Random floats: only the very fold of the contract gives these bits.
  const auto random = [](int rank, int64_t n, at::ScalarType dtype) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(1234 + rank);
    return at::randn({n}, generator, at::dtype(at::kFloat)).mul_(100).to(tensor_device, dtype);
  };
  const std::pair<at::ScalarType, at::ScalarType> kinds[] = {
      {at::kFloat, at::kFloat}, {at::kBFloat16, at::kFloat}, {at::kBFloat16, at::kBFloat16}, {at::kHalf, at::kHalf}};
  for (const auto& [in, out] : kinds) {
    for (const int64_t n : {int64_t{1000}, int64_t{150'000}}) {
      std::vector<at::Tensor> inputs;
      for (int k = 0; k < c.size(); ++k) inputs.push_back(random(k, n, in));
      at::Tensor output = zeros(n, out);
      c.all_reduce(output, inputs[c.rank()], {})->wait();
      require_equal(output, reference_fold(inputs, out, ReduceOp::sum),
                    fmt::format("bits of the sum of {} into {}", dtype_name(in), dtype_name(out)));
    }
  }
}

void shapes_do_not_matter(Communicator& c) {
  at::Tensor t = data(600, c.rank(), at::kFloat).view({20, 30});
  c.all_reduce(t, t, {})->wait();
  require_equal(t.view({-1}), reference_fold(terms(c.size(), 600, at::kFloat), at::kFloat, ReduceOp::sum),
                "2-d tensors");
}

template <typename E, typename F>
void require_throws(const std::string& part, F&& f) {
  try {
    f();
  } catch (const E& error) {
    require(std::string(error.what()).find(part) != std::string::npos,
            fmt::format("the message '{}' should say '{}'", error.what(), part));
    return;
  }
  throw std::runtime_error("no error that says '" + part + "'");
}

void wrong_calls_are_refused(Communicator& c) {
  const Counts ten(c.size(), 10);
  const at::Tensor small = zeros(10, at::kFloat), large = zeros(10 * c.size(), at::kFloat);
  require_throws<ShapeError>("counts[rank]", [&] { c.all_gather(large, zeros(9, at::kFloat), ten); });
  require_throws<ShapeError>("sum of counts", [&] { c.reduce_scatter(small, zeros(3, at::kFloat), ten, {}); });
  require_throws<ShapeError>("entries", [&] { c.all_gather(large, small, Counts(99, 1)); });
  require_throws<ShapeError>("cannot fold", [&] { c.all_reduce(zeros(4, at::kBFloat16), zeros(4, at::kFloat), {}); });
  require_throws<ShapeError>(
      "accumulate", [&] { c.all_reduce(small, zeros(10, at::kFloat), {.op = ReduceOp::max, .accumulate = true}); });
  require_throws<ShapeError>("root", [&] { c.broadcast(small, c.size()); });
  require_throws<ShapeError>("peer", [&] { c.send(small, c.rank()); });
  require_throws<ShapeError>("contiguous", [&] { c.broadcast(zeros(16, at::kFloat).view({4, 4}).t(), 0); });
  require_throws<ShapeError>("overlap", [&] {
    at::Tensor t = zeros(11, at::kFloat);
    c.all_reduce(t.narrow(0, 0, 10), t.narrow(0, 1, 10), {});
  });
  require_throws<UsageError>("0 or more", [&] { c.allocate_shared(-1, false); });
  c.barrier()->wait();  // the group is as good as new
}

void large(Communicator& c) {
  const int64_t n = int64_t{16} << 20;  // 64 MiB of float32
  const int size = c.size();
  const Counts counts(size, n / size);
  const at::Tensor pattern = at::arange(n, at::device(tensor_device).dtype(at::kInt)).bitwise_and_(1023).to(at::kFloat);
  const at::Tensor input = pattern + c.rank(), expected = pattern * size + size * (size - 1) / 2;
  at::Tensor output = zeros(n, at::kFloat);
  c.all_reduce(output, input, {})->wait();
  require_equal(output, expected, "all_reduce of 64 MiB");
  at::Tensor shard = zeros(n / size, at::kFloat);
  c.reduce_scatter(shard, input, counts, {})->wait();
  require_equal(shard, expected.narrow(0, c.rank() * (n / size), n / size), "reduce_scatter of 64 MiB");
  c.all_gather(output.zero_(), shard, counts)->wait();
  require_equal(output, expected, "all_gather of 64 MiB");
  at::Tensor shared = over(c.allocate_shared(n * 4, false).mine, n, at::kFloat).copy_(input);
  c.all_reduce(shared, shared, {})->wait();
  require_equal(shared, expected, "all_reduce of 64 MiB in place in symmetric memory");
}

constexpr Check kChecks[] = {{"AllGather", all_gather},
                             {"ReduceScatter", reduce_scatter},
                             {"ReduceScatterAccumulates", reduce_scatter_accumulates},
                             {"AllReduce", all_reduce},
                             {"Broadcast", broadcast},
                             {"Reduce", reduce},
                             {"GatherAndScatter", gather_and_scatter},
                             {"AllToAll", all_to_all},
                             {"Messages", messages},
                             {"Barrier", barrier},
                             {"ManyInFlight", many_in_flight},
                             {"SharedBuffers", shared_buffers},
                             {"FoldIsOrdered", fold_is_ordered},
                             {"ShapesDoNotMatter", shapes_do_not_matter},
                             {"WrongCallsAreRefused", wrong_calls_are_refused},
                             {"Large", large}};

}  // namespace

std::span<const Check> all_checks() { return kChecks; }

void run_check(const std::string& name, Communicator& communicator) {
  for (const Check& check : kChecks) {
    if (name != check.name) continue;
    try {
      return check.run(communicator);
    } catch (const std::exception& error) {
      throw std::runtime_error(fmt::format("{} on rank {} of {} over {}: {}", name, communicator.rank(),
                                           communicator.size(), communicator.backend(), error.what()));
    }
  }
  throw std::runtime_error("there is no check " + name);
}

}  // namespace trireme::comm::testing
