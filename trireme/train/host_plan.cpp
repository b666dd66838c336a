#include "trireme/train/host_plan.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/memory.h"
#include "trireme/base/text.h"
#include "trireme/config/validate.h"
#include "trireme/schedule/pipeline.h"
#include "trireme/train/setup.h"

namespace trireme::train {
namespace {

void check_save_copy(const plan::StepPlan& plan, int64_t ranks, int64_t with) {
  const int64_t copy = plan.save_copy_bytes(plan.local_groups), available = base::available_memory().bytes;
  if (with <= available) return;
  throw UsageError(fmt::format(
      "save.mode async keeps a copy of the state of {} a rank: with it the {} on this host need {}, without it {}, and "
      "{} are available; use --save.mode sync, or more hosts",
      base::human_bytes(copy), base::plural(ranks, "rank"), base::human_bytes(with),
      base::human_bytes(with - ranks * copy), base::human_bytes(available)));
}

}  // namespace

int64_t plan_host(const config::Settings& settings) {
  const int world = static_cast<int>(config::world_size(settings));
  const int64_t here = world / settings.num_nodes;
  at::set_num_threads(threads_of_a_rank(settings));  // attention's scratch is planned for each
  const model::ModelConfig config = resolve_model(settings);
  schedule::pipeline_schedule(settings.pipeline.schedule);  // refuses names that do not exist, without a pipeline too
  const plan::StepRequest request = step_request(settings, config, 0, world);
  const model::Model model = model::build_model(config, request.precision, request.parallel(), grouping(settings));
  const plan::StepPlan plan = plan::make_step_plan(model, request);
  if (settings.accelerator == config::Accelerator::cuda) return 0;
  const config::Backend backend = settings.comm.backend;
  const bool shared_memory = backend == config::Backend::automatic || backend == config::Backend::shm;
  const int64_t bytes = plan::host_bytes(plan, here, shared_memory);
  if (request.save_copy) check_save_copy(plan, here, bytes);
  return bytes;
}

}  // namespace trireme::train
