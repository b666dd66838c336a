#include "trireme/train/sample_reply.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "trireme/base/cgroup.h"
#include "trireme/base/error.h"
#include "trireme/base/mix64.h"
#include "trireme/base/parse_whole.h"
#include "trireme/base/text.h"
#include "trireme/data/examples.h"
#include "trireme/data/show.h"
#include "trireme/model/generator.h"
#include "trireme/text/chat_encoder.h"
#include "trireme/train/inference.h"
#include "trireme/train/setup.h"
#include "trireme/train/state_parts.h"

namespace trireme::train {
namespace {

constexpr int64_t kElementsAtOnce = int64_t{4} << 20;  // of a parameter that is collected
constexpr size_t kShownBytes = 160;                    // of a prompt

std::vector<int64_t> wide_ids(std::span<const int32_t> ids) { return {ids.begin(), ids.end()}; }

/// Whole parameters on rank 0, from the parts that all ranks would save.
class WholeWeights {
 public:
  WholeWeights(engine::Engine& engine, comm::Communicator& world) : world_(world) {
    for (const engine::GroupState& g : engine.state())
      for_each_part(g, g.saved, [&](const model::ParameterSpec& spec, int64_t begin, int64_t end, int64_t at) {
        if (spec.counted) parts_[spec.name].push_back({begin, g.master.narrow(0, at, end - begin)});
      });
  }

  /// Writes the parameter `name` of `size` elements to `to` on rank 0. Every rank must call, for the same parameters in
  /// the same order. Sums over ranks of which one at most has a number other than 0, so nothing is rounded.
  void collect(const std::string& name, int64_t size, const at::Tensor& to) {
    for (int64_t begin = 0; begin < size; begin += kElementsAtOnce) {
      const int64_t count = std::min(kElementsAtOnce, size - begin);
      const at::Tensor mine = at::zeros({count}, at::kDouble),
                       sum = world_.rank() == 0 ? at::empty_like(mine) : at::Tensor();
      for (const Part& part : parts_[name]) {
        const int64_t first = std::max(begin, part.begin),
                      end = std::min(begin + count, part.begin + part.values.numel());
        if (first < end)
          mine.narrow(0, first - begin, end - first).copy_(part.values.narrow(0, first - part.begin, end - first));
      }
      world_.reduce(sum, mine, 0, {})->wait();
      if (sum.defined()) to.view({-1}).narrow(0, begin, count).copy_(sum);
    }
  }

 private:
  struct Part {
    int64_t begin;  // in the whole parameter
    at::Tensor values;
  };
  comm::Communicator& world_;
  std::map<std::string, std::vector<Part>> parts_;  // by name
};

// The parameters that a Generator alone asks for, in its order.
std::vector<model::ParameterSpec> whole_parameters(const model::Model& whole) {
  std::vector<model::ParameterSpec> specs;
  std::set<std::string> seen;
  for (const auto& unit : whole.units)
    for (const model::ParameterSpec& spec : unit->parameters())
      if (seen.insert(spec.name).second) specs.push_back(spec);
  return specs;
}

std::vector<int64_t> prompt_of_text(const std::string& text, const data::TrainingData& data,
                                    const text::Tokenizer& tokenizer) {
  if (data.chat_template.empty()) return wide_ids(tokenizer.encode(text, {.add_special = true}));
  const text::ChatFamily& family = text::find_chat_family(data.chat_template);
  const std::vector<text::ChatMessage> message = {{"user", text}};
  return wide_ids(
      text::ChatEncoder(tokenizer, family).encode(text::render_chat(family, message, {.for_reply = true})).ids);
}

std::vector<int64_t> ends_of_replies(const Settings& settings, const data::TrainingData& data,
                                     const text::Tokenizer& tokenizer) {
  std::vector<int64_t> ids = stop_ids_of(settings.model.name, tokenizer);
  if (!tokenizer.eos_id())
    for (const int32_t id : tokenizer.document_separator()) ids.push_back(id);
  if (data.chat_template.empty()) return ids;
  const text::ChatFamily& family = text::find_chat_family(data.chat_template);
  if (family.stop != nullptr)
    if (const auto id = tokenizer.token_id(family.stop)) ids.push_back(*id);
  return ids;
}

std::string shown(const text::Tokenizer& tokenizer, std::span<const int64_t> ids) {
  std::string text = tokenizer.decode(std::vector<int32_t>(ids.begin(), ids.end()));
  if (text.size() <= kShownBytes) return data::visible(text);
  size_t cut = text.size() - kShownBytes;
  while (cut < text.size() && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) ++cut;  // inside a character
  return "..." + data::visible(text.substr(cut));
}

model::Precision sample_precision(const Settings& settings) {
  model::Precision precision = resolve_precision(settings);
  precision.on_gpu = false;
  return precision;
}

int64_t cached_tokens(const Settings& settings, const model::ModelConfig& config, int64_t prompt) {
  return std::min(config.max_position_embeddings, prompt + *settings.eval.max_new_tokens);
}

}  // namespace

std::vector<int64_t> sample_prompt(const Settings& settings, const data::TrainingData& data,
                                   const text::Tokenizer& tokenizer) {
  const std::string& wanted = settings.eval.evaluate_example;
  const auto number = base::parse_whole<int64_t>(wanted, 10);
  std::vector<int64_t> prompt;
  if (wanted == "first" || wanted == "random" || number) {
    const int64_t index = wanted == "random"
                              ? static_cast<int64_t>(base::mix_key(static_cast<uint64_t>(settings.seed), 0) %
                                                     static_cast<uint64_t>(data::count_documents(*data.examples)))
                              : number.value_or(0);
    if (!data.chat_template.empty()) prompt = data::prompt_of(*data.examples, index, settings.data.learn);
    if (prompt.empty())
      throw UsageError(fmt::format(
          "eval.evaluate_example {} takes the prompt of a conversation, and {}; give the prompt itself, as in "
          "--eval.evaluate_example \"Who are you?\"",
          wanted, data.chat_template.empty() ? "these data hold plain text" : "this one begins with its reply"));
  } else {
    prompt = prompt_of_text(wanted, data, tokenizer);
  }
  if (prompt.empty()) throw UsageError("eval.evaluate_example is empty; give it a prompt, or first");
  return prompt;
}

int64_t sample_bytes(const model::ModelConfig& config, const model::Precision& precision, int64_t tokens) {
  const model::Model whole = model::build_model(config, precision);
  int64_t elements = 0, largest = 0;
  for (const model::ParameterSpec& spec : whole_parameters(whole)) {
    elements += spec.numel();
    largest = std::max(largest, spec.numel());
  }
  for (const auto& unit : whole.units) elements += 2 * tokens * unit->cache_width();
  const auto buffers = 2 * std::min(largest, kElementsAtOnce) * static_cast<int64_t>(sizeof(double));
  return elements * static_cast<int64_t>(c10::elementSize(precision.compute)) + buffers;
}

void check_sample(const Settings& settings, const model::ModelConfig& config, const data::TrainingData& data,
                  const text::Tokenizer& tokenizer) {
  if (!settings.eval.max_new_tokens) return;
  if (settings.accelerator == engine::Accelerator::cuda)
    throw UsageError(
        "eval.max_new_tokens asks for sample replies, which are written on processors only, and this run is on GPUs; "
        "leave it out, and give a checkpoint to trireme generate");
  if (settings.lora.r || settings.lora.initial_adapter)
    throw UsageError(fmt::format(
        "eval.max_new_tokens asks for sample replies, which are not written while adapters are trained; leave "
        "it out, and use trireme generate {} --adapter {}",
        settings.model.name, settings.out_dir));
  const auto prompt = static_cast<int64_t>(sample_prompt(settings, data, tokenizer).size());
  const int64_t bytes = sample_bytes(config, sample_precision(settings), cached_tokens(settings, config, prompt));
  const int64_t available = base::available_memory().bytes;
  if (bytes > available)
    throw UsageError(fmt::format(
        "eval.max_new_tokens: a sample reply takes a whole copy of the weights on rank 0, {}, and {} are available; "
        "leave it out, and give a checkpoint to trireme generate",
        base::human_bytes(bytes), base::human_bytes(available)));
}

SampleReply::SampleReply(Session& session, const data::TrainingData& data, const text::Tokenizer& tokenizer)
    : s_(session),
      tokenizer_(tokenizer),
      prompt_(sample_prompt(s_.settings, data, tokenizer)),
      stop_ids_(ends_of_replies(s_.settings, data, tokenizer)) {}

model::Precision SampleReply::precision() const { return sample_precision(s_.settings); }

int64_t SampleReply::capacity() const { return cached_tokens(s_.settings, s_.model.config, std::ssize(prompt_)); }

std::string SampleReply::describe() const {
  return fmt::format(
      "sample   at each evaluation, up to {} in reply to: {}\n"
      "         for it rank 0 takes up to {} beside the plan, a copy of the weights",
      base::plural(*s_.settings.eval.max_new_tokens, "token"), shown(tokenizer_, prompt_),
      base::human_bytes(sample_bytes(s_.model.config, precision(), capacity())));
}

std::string SampleReply::write(const StopCheck& stops) const {
  comm::Communicator& world = s_.world();
  std::unique_ptr<model::Generator> generator;
  {
    WholeWeights weights(*s_.engine, world);
    if (s_.is_first_rank()) {
      const auto fill = [&](const model::ParameterSpec& spec, const at::Tensor& tensor) {
        weights.collect(spec.name, spec.numel(), tensor);
      };
      generator =
          std::make_unique<model::Generator>(s_.model.config, precision(), fill, model::GeneratorRanks{}, capacity());
    } else {
      for (const model::ParameterSpec& spec : whole_parameters(model::build_model(s_.model.config, precision())))
        weights.collect(spec.name, spec.numel(), {});
    }
  }
  // The ranks meet for each token, so that none waits longer than for one token, and all hear of a stop.
  const auto go_on = [&](bool more) {
    const at::Tensor flag = at::full({1}, more ? 1 : 0, at::kLong);
    world.broadcast(flag, 0)->wait();
    return flag.item<int64_t>() != 0 && !stops();
  };
  if (!s_.is_first_rank()) {
    while (go_on(true)) {
    }
    return "";
  }
  std::vector<int64_t> reply;
  const int64_t limit = *s_.settings.eval.max_new_tokens;
  bool ends = false;
  generator->generate(prompt_, limit, {.temperature = 0}, [&](int64_t token) {
    ends = std::ranges::find(stop_ids_, token) != stop_ids_.end();
    if (!ends) reply.push_back(token);
    return go_on(!ends && std::ssize(reply) < limit);
  });
  std::string text = tokenizer_.decode(std::vector<int32_t>(reply.begin(), reply.end()));
  return fmt::format("sample   {}{}", data::visible(text), ends ? "" : " ...");
}

}  // namespace trireme::train
