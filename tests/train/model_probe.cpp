// model_probe JOBS OUT: what models compute, for judges that nobody here wrote. JOBS is a JSON list of
//   {"name", "folder", "precision": "float32" | "bfloat16" | "float64", "tokens": [[...], ...], "targets": [[...],
//   ...],
//    "generated": bool, "trained": bool, "gradients": bool, "greedy": N}
// where rows of tokens are equally long, and targets are -100 where not supervised. OUT becomes a safetensors file of
//   <name>/generated  logits [rows, length, vocabulary] of the path that generates text: one token at a time
//   <name>/trained    the same by the units that training runs, all rows at once
//   <name>/gradients/<parameter>  of the mean loss, by the engine
// in float64 for float64, else float32. Standard output is a JSON object: for each job its "loss", the "measures"
// beside it, the tokens that "greedy" drew behind the first row, or the "error" that refused the folder.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trireme/adapt/adapter_folder.h"
#include "trireme/base/files.h"
#include "trireme/checkpoint/load.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/comm/factory.h"
#include "trireme/train/checkpointing.h"
#include "trireme/train/inference.h"

namespace trireme {
namespace {

using nlohmann::json;
using Found = std::vector<std::pair<std::string, at::Tensor>>;

model::Precision precision_of(const std::string& name) {
  if (name == "float64") return {at::kDouble, at::kDouble};
  return {name == "bfloat16" ? at::kBFloat16 : at::kFloat, at::kFloat};
}

at::Tensor rows_of(const json& rows) {
  std::vector<int64_t> flat;
  for (const json& row : rows)
    for (const json& token : row) flat.push_back(token.get<int64_t>());
  return at::tensor(flat, at::kLong).view({static_cast<int64_t>(rows.size()), -1});
}

at::Tensor generated(generate::Alone& alone, const at::Tensor& tokens) {
  std::vector<at::Tensor> all;
  for (int64_t row = 0; row < tokens.size(0); ++row)
    all.push_back(alone.logits({tokens[row].data_ptr<int64_t>(), static_cast<size_t>(tokens.size(1))}, 1));
  return at::stack(all);
}

std::vector<int64_t> greedy(generate::Alone& alone, const at::Tensor& prompt, int64_t count) {
  std::vector<int64_t> drawn;
  alone.generator().add({.tokens = {prompt.data_ptr<int64_t>(), prompt.data_ptr<int64_t>() + prompt.numel()},
                         .max_new_tokens = count,
                         .sampling = {.temperature = 0},
                         .slides = true,
                         .take = [&](int64_t token, double) {
                           drawn.push_back(token);
                           return true;
                         }});
  alone.generator().run();
  return drawn;
}

// A model on an engine of one rank, with the folder's weights.
class Trained {
 public:
  Trained(const std::filesystem::path& folder, const model::Precision& precision, const model::BatchShape& shape)
      : precision_(precision),
        model_(model::build_model(read_config(folder), precision)),
        plan_(plan::make_step_plan(model_, {.precision = precision, .shape = shape})),
        engine_(model_, plan_, engine::connect(plan_, {.name = ""})) {
    train::load_run(engine_, model_, folder, *engine_.communicators().world);
  }

  at::Tensor logits(const at::Tensor& tokens) {
    std::vector<std::vector<at::Tensor>> groups;
    for (const engine::GroupState& g : engine_.state()) groups.push_back(tensors(g, g.master.to(precision_.compute)));
    at::Tensor boundary;
    std::vector<at::Tensor> parameters;
    for (size_t u = 0; u < model_.units.size(); ++u) {
      parameters.clear();
      for (const model::ParameterPlace& p : model_.places[u]) parameters.push_back(groups[p.group][p.index]);
      if (u + 1 < model_.units.size()) boundary = forward(*model_.units[u], parameters, boundary, tokens.flatten());
    }
    const model::NewTokens all{.logit_rows = at::arange(tokens.numel(), at::kLong)};
    const model::UnitValues values =
        model_.units.back()->generation_values({.rows = tokens.numel(), .logit_rows = tokens.numel()}, precision_);
    model::UnitTensors t;
    t.parameters = parameters;
    t.input = boundary;
    t.new_tokens = &all;
    t.output = allocate(values.output);
    for (const model::TensorSpec& s : values.forward_work) t.work.push_back(allocate(s));
    model_.units.back()->forward(t);
    return t.output.view({tokens.size(0), tokens.size(1), -1});
  }

  engine::StepResult step(const at::Tensor& tokens, const at::Tensor& targets) {
    engine::StepInputs inputs;
    inputs.load_batch = [&](int, const engine::BatchTensors& to) {
      at::Tensor(to.inputs).copy_(tokens.flatten());
      at::Tensor(to.targets).copy_(targets.flatten());
    };
    inputs.supervised_tokens = targets.ge(0).sum().item<int64_t>();
    inputs.optimizer = {.lr = 0, .step = 1};
    return engine_.train_step(inputs);
  }

  /// Of the last step.
  Found gradients() {
    Found found;
    for (const engine::GroupState& g : engine_.state()) {
      const std::vector<at::Tensor> all = tensors(g, g.gradient);
      for (size_t i = 0; i < all.size(); ++i)
        found.emplace_back((*g.parameters)[i].name, in_file((*g.parameters)[i], all[i]));
    }
    return found;
  }

 private:
  static model::ModelConfig read_config(const std::filesystem::path& folder) {
    const auto path = folder / "config.json";
    return model::parse_hugging_face_config(base::read_file(path), path.string());
  }

  // A copy with its elements in the order of the file.
  static at::Tensor in_file(const model::ParameterSpec& p, const at::Tensor& held) {
    const at::Tensor whole = at::empty(p.whole_shape(), held.options());
    model::for_each_run(p, 0, p.numel(), [&](int64_t local, int64_t full, int64_t count) {
      whole.flatten().narrow(0, full, count).copy_(held.flatten().narrow(0, local, count));
    });
    return whole;
  }

  static std::vector<at::Tensor> tensors(const engine::GroupState& g, const at::Tensor& flat) {
    std::vector<at::Tensor> all;
    for (size_t i = 0; i < g.parameters->size(); ++i) {
      const shard::FlatTensor& t = g.layout->tensors()[i];
      all.push_back(flat.narrow(0, t.offset - g.held.begin, t.numel).view((*g.parameters)[i].shape));
    }
    return all;
  }

  static at::Tensor allocate(const model::TensorSpec& s) {
    return s.shape.empty() ? at::Tensor() : at::zeros(s.shape, at::TensorOptions().dtype(s.dtype));
  }

  at::Tensor forward(const model::Unit& unit, const std::vector<at::Tensor>& parameters, const at::Tensor& input,
                     const at::Tensor& tokens) const {
    model::UnitTensors t;
    t.shape = plan_.request.shape;
    t.parameters = parameters;
    t.input = input;
    t.tokens = tokens;
    const model::UnitValues values = unit.values(t.shape, precision_);
    t.output = allocate(values.output);
    for (const model::TensorSpec& s : values.saved) t.saved.push_back(allocate(s));
    for (const model::TensorSpec& s : values.forward_work) t.work.push_back(allocate(s));
    unit.forward(t);
    return t.output;
  }

  model::Precision precision_;
  model::Model model_;
  plan::StepPlan plan_;
  engine::Engine engine_;
};

json answer(const json& job, Found& found) try {
  const std::string name = job.at("name");
  const std::filesystem::path folder = job.at("folder").get<std::string>();
  const model::Precision precision = precision_of(job.at("precision"));
  const at::Tensor tokens = rows_of(job.at("tokens"));
  json reply = json::object();
  const int64_t drawn = job.value("greedy", int64_t{0});
  if (drawn > 0 || job.value("generated", false)) {
    const auto alone = train::open_alone(adapt::open_base(folder), precision, tokens.size(1) + drawn);
    if (job.value("generated", false)) found.emplace_back(name + "/generated", generated(*alone, tokens));
    if (drawn > 0) reply["greedy"] = greedy(*alone, tokens[0].contiguous(), drawn);
  }
  if (!job.value("trained", false) && !job.contains("targets")) return reply;
  Trained trained(folder, precision, {tokens.size(0), tokens.size(1)});
  if (job.value("trained", false)) found.emplace_back(name + "/trained", trained.logits(tokens));
  if (job.contains("targets")) {
    const engine::StepResult result = trained.step(tokens, rows_of(job["targets"]));
    reply["loss"] = result.loss;
    reply["measures"] = result.measures;
  }
  if (job.value("gradients", false))
    for (auto& [parameter, gradient] : trained.gradients())
      found.emplace_back(name + "/gradients/" + parameter, gradient);
  return reply;
} catch (const Error& error) {
  return {{"error", error.what()}};
}

void write(const std::string& path, Found& found) {
  std::vector<checkpoint::TensorSpec> specs;
  for (auto& [name, tensor] : found) {
    tensor = tensor.to(tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat).contiguous();
    specs.push_back({name, tensor.sizes().vec(), train::dtype_of(tensor.scalar_type())});
  }
  std::ofstream out(path, std::ios::binary);
  out << checkpoint::write_header(specs, {});
  for (const auto& [name, tensor] : found)
    out.write(static_cast<const char*>(tensor.const_data_ptr()), static_cast<std::streamsize>(tensor.nbytes()));
  out.close();
  if (!out) throw Error(fmt::format("cannot write {}", path));
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) try {
  if (argc != 3) throw trireme::UsageError("model_probe JOBS OUT");
  trireme::json replies = trireme::json::object();
  trireme::Found found;
  for (const trireme::json& job : trireme::json::parse(trireme::base::read_file(argv[1])))
    replies[job.at("name").get<std::string>()] = trireme::answer(job, found);
  trireme::write(argv[2], found);
  fmt::print("{}\n", replies.dump());
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
