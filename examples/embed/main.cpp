// Trireme as a library: two ranks, here threads of this process, add their tensors.
//
//     make install PREFIX=$HOME/trireme-installed
//     cmake -S examples/embed -B build/embed -DCMAKE_PREFIX_PATH=$HOME/trireme-installed
//     cmake --build build/embed && build/embed/embed
//
// prints: 2 ranks over threads: every element is 3
#include <ATen/ATen.h>

#include <cstdio>
#include <thread>

#include "trireme/comm/factory.h"

int main() {
  const auto segment = trireme::comm::make_thread_segment(2);
  auto work = [&](int rank) {
    const auto group = trireme::comm::make_communicator(
        {.name = "world", .backend = "threads", .rank = rank, .size = 2, .thread_segment = segment});
    const at::Tensor mine = at::full({1000}, rank + 1.0F);
    const at::Tensor sum = at::empty_like(mine);
    group->all_reduce(sum, mine, {})->wait();
    if (rank == 0) {
      std::printf("%d ranks over %s: every element is %g\n", group->size(), group->backend().c_str(),
                  sum.eq(3).all().item<bool>() ? 3.0 : -1.0);
    }
  };
  std::jthread other(work, 1);
  work(0);
}
