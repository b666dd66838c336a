#include "trireme/cli/explained.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/config/validate.h"
#include "trireme/train/setup.h"

namespace trireme::cli {

Explained plan_of(const config::Settings& settings, int rank) {
  const int64_t ranks = config::world_size(settings);
  config::validate(settings, ranks);
  if (rank >= ranks)
    throw UsageError(
        fmt::format("error: there is no rank {}: the mesh has {}, counted from 0", rank, base::plural(ranks, "rank")));
  at::set_num_threads(train::threads_of_a_rank(settings));  // attention's scratch is planned for each
  const model::ModelConfig config = train::resolve_model(settings);
  const plan::StepRequest request = train::step_request(settings, config, rank, static_cast<int>(ranks));
  Explained e;
  e.model = std::make_unique<model::Model>(
      model::build_model(config, request.precision, request.parallel(), train::grouping(settings)));
  e.plan = plan::make_step_plan(*e.model, request);
  return e;
}

}  // namespace trireme::cli
