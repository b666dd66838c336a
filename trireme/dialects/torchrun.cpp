#include "trireme/dialects/torchrun.h"

#include <string_view>

namespace trireme::dialects {

void torchrun(config::Given& given) {
  constexpr std::string_view kWords[] = {"nnodes",    "rdzv_endpoint", "max_restarts",
                                         "node_rank", "master_addr",   "master_port"};
  for (const std::string_view word : kWords)
    if (given.key == word) return void(given.key.insert(0, "launch."));
}

}  // namespace trireme::dialects
