// One rank of a job that goes wrong as the test asks, at a call of its own choice.
//   fault_rank bare|train SETTINGS...       settings as of trireme pretrain
//   TRIREME_FAULT=RANK:KIND:GROUP:CALL      "2:sleep:gather:17": rank 2 does not come to call 17 of its group gather
//   TRIREME_FAULT_STEPS                     how long it lasts
// bare: collectives of all kinds and sizes in the order that a seed draws. train: training steps of a real plan through
// the engine, on random tokens. The time of the fault goes into the file fault.txt of out_dir.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "faulty_communicator.h"
#include "trireme/base/log.h"
#include "trireme/base/text.h"
#include "trireme/launch/machines/meeting_file.h"
#include "trireme/launch/supervise/stop_signal.h"
#include "trireme/launch/supervise/worker.h"
#include "trireme/settings/parse.h"
#include "trireme/settings/validate.h"
#include "trireme/train/failure.h"
#include "trireme/train/session.h"
#include "trireme/train/setup.h"

namespace trireme::testing {
namespace {

struct Order {
  int rank = -1;
  FaultKind kind = FaultKind::none;
  std::string group;
  int64_t call = 0;
};

Order read_order() {
  const char* text = std::getenv("TRIREME_FAULT");
  Order order;
  if (text == nullptr) return order;
  std::istringstream in(text);
  std::string rank, kind, call;
  std::getline(in, rank, ':');
  std::getline(in, kind, ':');
  std::getline(in, order.group, ':');
  std::getline(in, call, ':');
  order.rank = std::stoi(rank);
  order.kind = fault_kind(kind);
  order.call = std::stoll(call);
  return order;
}

// Wraps the communicator that the order names, if this is the rank.
void add_fault(comm::CommunicatorPtr& communicator, const std::string& group, int rank, const std::string& out_dir) {
  const Order order = read_order();
  if (order.rank != rank || order.group != group || communicator->size() == 1) return;
  communicator =
      make_faulty(communicator,
                  {.kind = order.kind, .call = order.call, .before = [out_dir] {
                     std::ofstream(std::filesystem::path(out_dir) / "fault.txt")
                         << std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
                   }});
}

int num_steps() {
  const char* text = std::getenv("TRIREME_FAULT_STEPS");
  return text == nullptr ? 50 : std::atoi(text);
}

// The same draws on every rank.
void run_bare(comm::Communicator& c, comm::FlightRecorder& recorder) {
  std::mt19937 draw(17);
  const auto n = static_cast<size_t>(c.size());
  for (int step = 1; step <= num_steps(); ++step) {
    recorder.set_step(step);
    launch::report_status(fmt::format("step {}", step));
    const int64_t each = 1 + draw() % 50'000;
    const std::vector<int64_t> counts(n, each);
    const at::Tensor mine = at::ones({each}, at::kFloat), all = at::ones({each * c.size()}, at::kFloat);
    const int root = static_cast<int>(draw() % n);
    switch (draw() % 5) {
      case 0:
        c.all_gather(all, mine, counts)->wait();
        break;
      case 1:
        c.reduce_scatter(mine, all, counts, {})->wait();
        break;
      case 2:
        c.all_reduce(mine, mine, {})->wait();
        break;
      case 3:
        c.broadcast(mine, root)->wait();
        break;
      default:
        c.all_reduce(all, all, {.op = comm::ReduceOp::max})->wait();
    }
  }
  c.barrier()->wait();
}

void run_training(const Settings& settings, const launch::RankEnvironment& environment) {
  const model::ModelConfig config = model::config_of(settings.model);
  const plan::StepRequest request =
      train::step_request(settings, config, environment.global_rank, environment.world_size);
  const model::Model model = model::build_model(config, train::resolve_precision(settings), request.parallel(),
                                                model::grouping_of(settings.wrap));
  const plan::StepPlan plan = plan::make_step_plan(model, request);
  train::Ranks ranks = train::connect_ranks(settings, environment, plan);
  engine::Communicators& c = ranks.communicators;
  const auto fault = [&](comm::CommunicatorPtr& communicator, const char* group) {
    add_fault(communicator, group, environment.global_rank, settings.out_dir);
  };
  fault(c.gather, "gather");
  fault(c.reduce, "reduce");
  fault(c.replicas, "replicas");
  fault(c.loss, "loss");
  fault(c.world, "world");
  fault(c.stages[schedule::kActivations], "activations");
  fault(c.stages[schedule::kGradients], "gradients");
  for (const comm::UnitAxisTraits& axis : comm::kUnitAxes) fault(c.inside[axis.axis], axis.name);
  engine::Engine engine(model, plan, c, {});
  engine.initialize(7);
  for (int step = 1; step <= num_steps(); ++step) {
    engine::StepInputs inputs;
    inputs.load_batch = [&](int, const engine::BatchTensors& to) {
      for (const at::Tensor& t : {to.inputs, to.targets})
        if (t.defined()) at::Tensor(t).fill_(step % 256);
    };
    inputs.optimizer.lr = 1e-3;
    inputs.optimizer.step = step;
    inputs.max_norm = 1.0;
    inputs.supervised_tokens = settings.train.global_batch_size;
    engine.train_step(inputs);
    launch::report_status(fmt::format("step {}", step));
  }
  c.world->barrier()->wait();
}

int run(const std::string& mode, const std::vector<std::string>& words) {
  const ParsedSettings parsed = parse_settings(words);
  Settings settings = parsed.settings;
  const launch::RankEnvironment environment = launch::rank_environment();
  settings.devices = environment.world_size;
  std::filesystem::create_directories(settings.out_dir);
  launch::install_stop_signal();
  try {
    if (mode == "train") {
      run_training(settings, environment);
    } else {
      train::RankMeeting meeting = train::meet(settings, environment);
      meeting.options.name = "world";
      meeting.options.rank = environment.global_rank;
      meeting.options.size = environment.world_size;
      comm::CommunicatorPtr world = comm::make_communicator(meeting.options);
      add_fault(world, "world", environment.global_rank, settings.out_dir);
      run_bare(*world, *meeting.recorder);
    }
  } catch (const CommError& error) {
    if (launch::fault_of(error) == launch::Fault::timeout) train::tell_hang(settings, environment);
    throw;
  }
  return 0;
}

}  // namespace
}  // namespace trireme::testing

// As the program's own main.
int main(int argc, char** argv) try {
  if (argc < 2) return 2;
  return trireme::testing::run(argv[1], {argv + 2, argv + argc});
} catch (const std::exception& e) {
  trireme::train::report_failure(e);
  trireme::launch::name_rank_in_log();
  trireme::base::report_error(e);
  return 1;
}
