#include "support.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "trireme/base/error.h"
#include "trireme/comm/factory.h"
#include "trireme/engine/device.h"
#include "trireme/ops/cuda/kernels.h"

namespace trireme::engine {

model::ModelConfig small_llama() {
  model::ModelConfig c;
  c.vocab_size = 61;
  c.hidden_size = 48;
  c.intermediate_size = 80;
  c.num_hidden_layers = 3;
  c.num_attention_heads = 4;
  c.num_key_value_heads = 2;
  c.head_dim = 16;
  c.max_position_embeddings = 16;
  return c;
}

model::ModelConfig small_gpt2() {
  model::ModelConfig c = small_llama();
  set_architecture(c, model::Architecture::gpt2);
  c.num_attention_heads = c.num_key_value_heads = 3;
  c.head_dim = 16;
  c.tie_word_embeddings = true;
  return c;
}

model::ModelConfig small_qwen3() {
  model::ModelConfig c = small_llama();
  c.architecture = model::Architecture::qwen3;
  c.query_key_norm = true;
  c.sliding_window = 5;
  return c;
}

model::ModelConfig small_gemma3() {
  model::ModelConfig c = small_qwen3();
  c.architecture = model::Architecture::gemma3;
  c.norm_offset = 1;
  c.activation = model::Activation::gelu_tanh;
  c.post_norms = c.scaled_embedding = c.tie_word_embeddings = true;
  c.attention_scale = 0.3;
  c.logit_softcap = 4;
  c.rope_local_theta = 50;
  c.rope_scaling = {.type = model::RopeScaling::Type::linear, .factor = 4};
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) c.windowed.push_back(i % 3 != 1);
  return c;
}

model::ModelConfig small_free(int64_t bits, model::Injection injection) {
  model::ModelConfig c = small_llama();
  c.architecture = model::Architecture::free_transformer;
  c.num_hidden_layers = 4;
  c.initializer_range = 0.2;  // so that bits depend on the text, and the text on them
  c.free = {.latent_bits = bits, .split_layer = 2, .injection = injection, .free_bits = 0.02, .kl_weight = 0.5};
  return c;
}

// The other relatives by their model_type, with numbers in which everything they have matters.
model::ModelConfig small_relative(const std::string& model_type) {
  model::ModelConfig c = small_llama();
  set_architecture(c, model::find_architecture(model_type, "a test"));
  if (model_type == "smollm3") c.sliding_window = 5, c.windowed = {true, false, true};
  if (model_type == "granite") {
    c.embedding_multiplier = 3, c.residual_multiplier = 0.4, c.logit_divisor = 1.7, c.attention_scale = 0.2;
    c.attention_bias = c.attention_out_bias = c.mlp_bias = true;
  }
  if (model_type == "phi3") c.rotary_fraction = 0.5;
  if (model_type == "gpt_neox") c.num_key_value_heads = c.num_attention_heads, c.head_dim = 12, c.rotary_fraction = 0.5;
  if (model_type == "olmo2") c.attention_bias = c.attention_out_bias = true;
  return c;
}

model::ModelConfig small_classifier(const std::string& model_type) {
  model::ModelConfig c = small_llama();
  const bool post = model_type == "encoder post";
  if (model_type != "llama") set_architecture(c, model::find_architecture(post ? "encoder" : model_type, "a test"));
  if (c.bidirectional) c.head_dim = c.hidden_size / c.num_attention_heads;
  if (post) place_norms(c, model::NormPlacement::post), c.activation = model::Activation::relu;
  c.initializer_range = 0.1;
  set_labels(c, {"a", "b", "c"});
  return c;
}

model::ModelConfig small_model(const std::string& family) {
  if (family.starts_with("labels ")) return small_classifier(family.substr(7));
  if (family == "gpt2") return small_gpt2();
  if (family == "qwen3") return small_qwen3();
  if (family == "gemma3") return small_gemma3();
  return family.empty() || family == "llama" ? small_llama() : small_relative(family);
}

int Job::ranks() const { return mesh.pp * mesh.replicate * mesh.shard * mesh.cp * mesh.tp; }

void fill_micro_batch(int64_t step, int64_t number, int64_t vocabulary, const at::Tensor& tokens,
                      const at::Tensor& targets, bool ragged) {
  uint64_t state = static_cast<uint64_t>(step) * 1000003 + static_cast<uint64_t>(number) * 7919 + 1;
  const auto draw = [&] {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(vocabulary));
  };
  for (int64_t i = 0; i < tokens.numel(); ++i) {
    const int64_t token = draw();
    tokens.data_ptr<int64_t>()[i] = token;
    targets.data_ptr<int64_t>()[i] = (7 * token + 3) % vocabulary;  // something to learn
    if (ragged && (number + i) % 3 == 0) targets.data_ptr<int64_t>()[i] = -100;
  }
}

at::Tensor document_starts(const model::BatchShape& shape, int64_t number) {
  const at::Tensor starts = at::empty({shape.tokens()}, at::kLong);
  for (int64_t b = 0; b < shape.micro_batch; ++b) {
    const int64_t length = 3 + (number + b) % 5;
    for (int64_t i = 0; i < shape.sequence; ++i)
      starts.data_ptr<int64_t>()[b * shape.sequence + i] = i / length * length;
  }
  return starts;
}

at::Tensor pair_starts(const model::BatchShape& shape, int64_t number) {
  const at::Tensor starts = at::empty({shape.tokens()}, at::kLong);
  for (int64_t i = 0; i < shape.tokens(); ++i) {
    const int64_t length = shape.sequence / ((number + i / shape.sequence) % 2 == 0 ? 2 : 4);
    starts.data_ptr<int64_t>()[i] = i % shape.sequence / length * length;
  }
  return starts;
}

int64_t num_pairs(const at::Tensor& starts) {
  int64_t documents = 0, before = -1;
  for (int64_t i = 0; i < starts.numel(); ++i) {
    documents += starts.data_ptr<int64_t>()[i] == before ? 0 : 1;
    before = starts.data_ptr<int64_t>()[i];
  }
  return documents / 2;
}

void fill_pairs(const at::Tensor& starts, const at::Tensor& targets) {
  const int64_t places = starts.numel();
  auto* target = targets.data_ptr<int64_t>();
  std::vector<double> said(static_cast<size_t>(model::PairInput::end * places));
  int64_t begin = 0, document = -1;
  for (int64_t i = 0; i < places; ++i) {
    const int64_t start = starts.data_ptr<int64_t>()[i];
    if (i == 0 || start != starts.data_ptr<int64_t>()[i - 1]) begin = i, ++document;
    const bool is_reply = i - begin >= 2, is_chosen = document % 2 == 0;
    if (!is_reply) target[i] = -100;
    said[static_cast<size_t>(model::PairInput::reply * places + i)] = is_reply ? 1 : 0;
    said[static_cast<size_t>(model::PairInput::likelihood * places + i)] = is_reply && is_chosen ? 0.25 : 0;
    said[static_cast<size_t>(model::PairInput::reference * places + i)] =
        i - begin == 2 ? -4.0 - static_cast<double>(document % 3) : 0;
  }
  std::memcpy(target + places, said.data() + places, (said.size() - static_cast<size_t>(places)) * sizeof(double));
}

void load_documents(const BatchTensors& to, const plan::StepRequest& r, const at::Tensor& starts) {
  if (to.text_length != nullptr && r.documents.positions) {
    *to.text_length = 0;
    for (int64_t i = 0; i < starts.numel(); ++i)
      *to.text_length =
          std::max(*to.text_length, i % r.shape.sequence - starts.data_ptr<int64_t>()[i] + 1);  // of its document
  } else if (to.text_length != nullptr) {
    *to.text_length = starts.max().item<int64_t>();  // as if each row's last document were padding
  }
  if (to.document_starts.defined()) at::Tensor(to.document_starts).copy_(starts);
  if (!to.position_ids.defined()) return;
  auto* id = to.position_ids.data_ptr<int64_t>();
  for (int64_t b = 0; b < r.shape.micro_batch; ++b)
    for (const int64_t position : model::context_positions(r.parallel(), r.shape.sequence))
      *id++ = position - starts.data_ptr<int64_t>()[b * r.shape.sequence + position];
}

plan::StepRequest request_of(const Job& job, int rank) {
  plan::StepRequest r{.precision = job.precision, .shape = job.shape, .mesh = {job.mesh, job.ranks()}, .rank = rank};
  r.precision.on_gpu = job.on_gpu;
  r.strategy = job.strategy;
  r.reduce = job.ordered ? plan::Reduce::ordered : plan::Reduce::fast;
  r.accumulation = job.local_accumulation ? plan::Accumulation::local : plan::Accumulation::sharded;
  r.sequence_parallel = job.sequence_parallel;
  r.context = job.context;
  r.num_micro_batches = (job.global_micro_batches + r.num_data_ranks() - 1) / r.num_data_ranks();
  r.documents = job.documents;
  r.recompute = job.recompute;
  r.prefetch = job.prefetch;
  r.reduce_lag = job.reduce_lag;
  r.offload = job.offload;
  r.optimizer = job.optimizer;
  r.steps_in_backward = job.steps_in_backward;
  r.pipeline = job.pipeline;
  r.guard_bytes = job.poison ? 192 : 0;
  return r;
}

namespace {

// What has gone through each communicator so far.
std::map<std::string, int64_t> traffic_of(const Communicators& c) {
  std::map<std::string, int64_t> out;
  const auto add = [&](const std::string& name, const comm::CommunicatorPtr& communicator) {
    for (int op = 0; op < static_cast<int>(comm::Operation::barrier); ++op) {
      const auto operation = static_cast<comm::Operation>(op);
      if (const int64_t bytes = communicator->traffic(operation).bytes; bytes > 0)
        out[name + "." + std::string(comm::to_string(operation))] += bytes;
    }
  };
  add("gather", c.gather), add("reduce", c.reduce), add("replicas", c.replicas);
  for (const comm::UnitAxisTraits& axis : comm::kUnitAxes) add(axis.name, c.inside[axis.axis]);
  add("activations", c.stages[0]), add("gradients", c.stages[1]);
  for (const auto& [group, communicator] : c.tied) add("tied", communicator);
  return out;
}

// A parameter's elements, put together from the ranks' parts.
class Assembly {
 public:
  void add(const GroupState& g, at::Tensor GroupState::* member) {
    if (!(g.*member).defined() || g.storage->quantized != base::BlockFormat::none) return;
    for (size_t i = 0; i < g.layout->tensors().size(); ++i) {
      const shard::FlatTensor& t = g.layout->tensors()[i];
      const model::ParameterSpec& spec = (*g.parameters)[i];
      int64_t numel = 1;
      for (int64_t s : spec.whole_shape()) numel *= s;
      at::Tensor& whole = whole_[spec.name];
      if (!whole.defined()) whole = at::full({numel}, std::nan(""), at::kDouble);
      const int64_t begin = std::max(g.held.begin, t.offset), end = std::min(g.held.end, t.offset + t.numel);
      if (begin >= end) continue;
      model::for_each_run(spec, begin - t.offset, end - t.offset, [&](int64_t local, int64_t full, int64_t count) {
        whole.narrow(0, full, count).copy_((g.*member).narrow(0, t.offset + local - g.held.begin, count));
      });
    }
  }
  at::Tensor all() const {
    std::vector<at::Tensor> parts;
    for (const auto& [name, tensor] : whole_) parts.push_back(tensor);
    return parts.empty() ? at::empty({0}, at::kDouble) : at::cat(parts);
  }
  const std::map<std::string, at::Tensor>& by_name() const { return whole_; }

 private:
  std::map<std::string, at::Tensor> whole_;
};

class Runner {
 public:
  explicit Runner(const Job& job) : job_(job) {
    check_invariant(job.ranks() > 0, "a job says how many ranks shard");
    outcome_.traffic.resize(job.ranks());
    outcome_.planned.resize(job.ranks());
    outcome_.allocated.resize(job.ranks());
    outcome_.graphs.resize(job.ranks());
    outcome_.lower_bound.resize(job.ranks());
  }

  Outcome go() {
    std::vector<std::exception_ptr> errors(job_.ranks());
    std::vector<std::thread> threads;
    for (int r = 0; r < job_.ranks(); ++r)
      threads.emplace_back([&, r] {
        try {
          train(r);
        } catch (...) {
          errors[r] = std::current_exception();
        }
      });
    for (std::thread& t : threads) t.join();
    for (const auto& error : errors)
      if (error) std::rethrow_exception(error);
    outcome_.parameters = parameters_.all();
    outcome_.gradients = gradients_.all();
    outcome_.parameter = parameters_.by_name();
    outcome_.gradient = gradients_.by_name();
    return std::move(outcome_);
  }

 private:
  at::Tensor starts_of(int64_t number) const {
    return job_.objective.is_pairs() ? pair_starts(job_.shape, number) : document_starts(job_.shape, number);
  }

  void fill(int64_t step, int64_t number, const at::Tensor& tokens, const at::Tensor& targets) const {
    fill_micro_batch(step, job_.first_micro_batch + number, job_.model.vocab_size, tokens, targets, job_.ragged);
    if (job_.objective.is_pairs()) fill_pairs(starts_of(step + number), targets);
    if (!job_.model.is_classifier()) return;
    // A label at the first token of each sequence, if that one is supervised.
    auto* target = targets.data_ptr<int64_t>();
    for (int64_t i = 0; i < targets.numel(); ++i)
      target[i] = i % job_.shape.sequence > 0 || target[i] < 0 ? -100 : target[i] % job_.model.classifier.num_labels;
  }

  void change_padding(const at::Tensor& tokens, const at::Tensor& starts) const {
    for (int64_t i = 0; i < tokens.numel(); ++i)
      if (starts.data_ptr<int64_t>()[i] > 0)
        tokens.data_ptr<int64_t>()[i] = (tokens.data_ptr<int64_t>()[i] + job_.behind) % job_.model.vocab_size;
  }

  // The rank's part of the micro-batch that all context-parallel ranks share.
  void load(const plan::StepRequest& r, int64_t step, int64_t number, const BatchTensors& to) const {
    load_documents(to, r, starts_of(step + number));
    if (!to.inputs.defined()) return;
    const at::Tensor& tokens = to.inputs;
    const int64_t rows = job_.objective.target_rows(), places = job_.shape.tokens();
    at::Tensor all = at::empty({places}, at::kLong), all_targets = at::empty({rows * places}, at::kLong);
    fill(step, number, all, all_targets);
    if (job_.behind > 0) change_padding(all, starts_of(step + number));
    if (number >= job_.global_micro_batches) all_targets.zero_().narrow(0, 0, places).fill_(-100);
    const std::vector<int64_t> positions = model::context_positions(r.parallel(), job_.shape.sequence);
    const auto local = static_cast<int64_t>(positions.size());
    for (int64_t b = 0; b < job_.shape.micro_batch; ++b)
      for (int64_t i = 0; i < local; ++i) {
        tokens.data_ptr<int64_t>()[b * local + i] = all.data_ptr<int64_t>()[b * job_.shape.sequence + positions[i]];
        for (int64_t row = 0; row < rows; ++row)
          to.targets.data_ptr<int64_t>()[row * job_.shape.micro_batch * local + b * local + i] =
              all_targets.data_ptr<int64_t>()[row * places + b * job_.shape.sequence + positions[i]];
      }
  }

  int64_t supervised(int64_t step) const {
    int64_t count = 0;
    const int64_t places = job_.shape.tokens();
    at::Tensor tokens = at::empty({places}, at::kLong),
               targets = at::empty({job_.objective.target_rows() * places}, at::kLong);
    for (int64_t i = 0; i < job_.global_micro_batches; ++i) {
      fill(step, i, tokens, targets);
      count += job_.objective.is_pairs() ? num_pairs(starts_of(step + i)) : targets.ne(-100).sum().item<int64_t>();
    }
    return count;
  }

  // One rank gives the step up, the others hear of it sooner, later or never.
  void give_up_once(Engine& engine, const Communicators& communicators, StepInputs inputs, int rank) const {
    const auto draw = [&](int64_t salt, size_t below) {
      uint64_t state = static_cast<uint64_t>(inputs.optimizer.step * 1000003 + salt * 7919 + 17);
      for (int i = 0; i < 3; ++i) state = state * 6364136223846793005ull + 1442695040888963407ull;
      return static_cast<size_t>(state >> 33) % below;
    };
    const size_t actions = engine.plan().train().actions.size();
    const bool first = draw(-1, static_cast<size_t>(job_.ranks())) == static_cast<size_t>(rank);
    // It is asked once before each action; graphs make one of many.
    const size_t when = draw(rank, !first ? 2 * actions : job_.graphs ? 3 : actions / 2);
    size_t asked = 0;
    inputs.give_up = [&] { return asked++ >= when; };
    inputs.commit = [&](bool gave_up) {
      const at::Tensor mine = at::full({1}, int64_t{gave_up}, at::kLong), any = at::empty_like(mine);
      communicators.world->all_reduce(any, mine, {.op = comm::ReduceOp::max})->wait();
      return any.item<int64_t>() == 0;
    };
    if (engine.train_step(inputs).committed) throw Error("a step that was given up was taken");
  }

  void set_weights(Engine& engine) const {
    if (job_.weights.empty()) return;
    for (const GroupState& g : engine.state())
      for (size_t i = 0; i < g.layout->tensors().size(); ++i) {
        const shard::FlatTensor& t = g.layout->tensors()[i];
        const model::ParameterSpec& spec = (*g.parameters)[i];
        const auto given = job_.weights.find(spec.name);
        const int64_t begin = std::max(g.held.begin, t.offset), end = std::min(g.held.end, t.offset + t.numel);
        if (given == job_.weights.end() || begin >= end) continue;
        model::for_each_run(spec, begin - t.offset, end - t.offset, [&](int64_t local, int64_t full, int64_t count) {
          at::Tensor(g.master)
              .narrow(0, t.offset + local - g.held.begin, count)
              .copy_(given->second.flatten().narrow(0, full, count));
        });
      }
    engine.refresh_weights();
  }

  void train(int rank) {
    at::set_num_threads(1);
    const at::Device device = job_.on_gpu ? take_gpu(0) : at::Device(at::kCPU);
    const plan::StepRequest r = request_of(job_, rank);
    const model::Model model =
        model::build_model(job_.model, r.precision, r.parallel(), job_.grouping, job_.adapters, job_.objective);
    plan::StepPlan plan = plan::make_step_plan(model, r);
    const plan::MemoryReport memory = plan::memory_report(plan);
    Communicators communicators = connect(plan,
                                          {.name = "",
                                           .backend = job_.ranks() > 1 ? job_.backend : "auto",
                                           .store = store_,
                                           .timeout = std::chrono::seconds(60),
                                           .on_device = job_.on_gpu},
                                          job_.poison);
    const auto graphs = job_.graphs && job_.on_gpu ? ops::cuda_kernels().graph_maker() : job_.graphs;
    Engine engine(model, std::move(plan), communicators,
                  EngineOptions{.poison = job_.poison, .device = device, .graphs = graphs});
    engine.initialize(42);
    set_weights(engine);
    const auto before = traffic_of(communicators);
    StepInputs inputs;
    inputs.seed = 7;
    inputs.max_norm = job_.max_norm;
    optim::LossScale scale(job_.loss_scale);
    for (int step = 1; step <= job_.steps; ++step) {
      inputs.supervised_tokens = supervised(step);
      inputs.optimizer = job_.optimizer;
      inputs.optimizer.step = step;
      inputs.load_batch = [&](int mb, const BatchTensors& to) {
        load(r, step, int64_t(mb) * r.num_data_ranks() + r.data_index(), to);
      };
      if (job_.gives_up) give_up_once(engine, communicators, inputs, rank);
      if (job_.precision.compute == at::kHalf) {
        const bool overflows = rank == job_.ranks() - 1 && job_.overflows.contains(step);
        inputs.loss_scale = overflows ? 0x1p100 : scale.scale();
        inputs.skipped = scale.skipped();
      }
      if (rank == 0 && step == 1) ops::listen(job_.listener);
      const StepResult result = engine.train_step(inputs);
      ops::listen(nullptr);
      if (rank == job_.ranks() - 1) outcome_.scales.push_back(scale.scale());
      if (rank == job_.ranks() - 1 && result.overflowed) outcome_.skipped.push_back(step);
      scale.update(result.overflowed);
      if (step == 1) {
        const std::lock_guard lock(mutex_);
        for (GroupState g : engine.state()) {
          if (g.gradient.defined() && inputs.loss_scale) g.gradient = g.gradient / *inputs.loss_scale;
          gradients_.add(g, &GroupState::gradient);
        }
        for (const auto& [what, bytes] : traffic_of(communicators))
          outcome_.traffic[rank][what] = bytes - (before.contains(what) ? before.at(what) : 0);
      }
      if (rank == job_.ranks() - 1) {
        outcome_.losses.push_back(result.loss);
        outcome_.measures.push_back(result.measures);
        outcome_.norms.push_back(result.gradient_norm);
      }
    }
    const double evaluation = engine.evaluate([&](int, const BatchTensors& to) { load(r, 100, 0, to); },
                                              r.num_data_ranks() * job_.shape.tokens());
    double held_out = 0;
    LossSums sums;
    for (int64_t first = 0; first < job_.global_micro_batches; first += r.num_data_ranks())
      held_out =
          engine.evaluate([&](int, const BatchTensors& to) { load(r, 100, first + r.data_index(), to); }, 1, &sums);
    communicators.world->barrier()->wait();
    const std::lock_guard lock(mutex_);
    if (rank == 0) outcome_.evaluation = evaluation, outcome_.held_out = held_out;
    outcome_.planned[rank] = memory.total_bytes;
    outcome_.lower_bound[rank] = memory.lower_bound_bytes;
    outcome_.allocated[rank] = engine.allocated_bytes();
    outcome_.graphs[rank] = engine.graphs();
    for (const GroupState& g : engine.state()) parameters_.add(g, &GroupState::master);
  }

  const Job& job_;
  c10::intrusive_ptr<c10d::Store> store_ = c10::make_intrusive<c10d::HashStore>();
  std::mutex mutex_;
  Outcome outcome_;
  Assembly parameters_, gradients_;
};

}  // namespace

Outcome run(const Job& job) { return Runner(job).go(); }

double relative_distance(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).norm() / b.norm()).item<double>();
}

void expect_equal_bits(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.norms, b.norms);
  EXPECT_EQ(a.held_out, b.held_out);
  EXPECT_TRUE(at::equal(a.parameters, b.parameters)) << relative_distance(a.parameters, b.parameters);
  EXPECT_TRUE(at::equal(a.gradients, b.gradients)) << relative_distance(a.gradients, b.gradients);
}

namespace {

/// Passes every request on to LibTorch's allocator and counts them.
class CountingAllocator final : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator* wrapped) : wrapped_(wrapped) {}
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes > 0) ++count_;
    return wrapped_->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return wrapped_->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
  int64_t count() const { return count_; }

 private:
  c10::Allocator* wrapped_;
  std::atomic<int64_t> count_ = 0;
};

}  // namespace

int64_t allocator_requests() {
  static CountingAllocator counting(c10::GetCPUAllocator());  // LibTorch keeps the pointer
  c10::SetCPUAllocator(&counting, /*priority=*/1);
  static int64_t own = 0;
  const int64_t before = counting.count();
  const at::Tensor noticed = at::empty({8});
  EXPECT_EQ(counting.count(), before + 1);
  return counting.count() - ++own;
}

}  // namespace trireme::engine
