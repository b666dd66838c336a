// print_logits CHECKPOINT OUT TOKEN...: writes the logits behind every token, float32 [tokens, vocabulary], to OUT by
// the path that generates text (one token at a time against a cache), and prints the mean loss of the training
// path's forward on the same tokens, each to be followed by the next. Transformers judges both.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <fstream>
#include <string>
#include <vector>

#include "trireme/base/files.h"
#include "trireme/comm/factory.h"
#include "trireme/train/checkpointing.h"
#include "trireme/train/generate.h"

namespace trireme {
namespace {

double training_loss(const std::filesystem::path& folder, const std::vector<int64_t>& tokens) {
  const model::Precision precision{at::kFloat, at::kFloat};
  const auto path = folder / "config.json";
  const model::Model model =
      model::build_model(model::parse_hugging_face_config(base::read_file(path), path.string()), precision);
  const auto count = static_cast<int64_t>(tokens.size()) - 1;
  const plan::StepPlan plan = plan::make_step_plan(model, {.precision = precision, .shape = {1, count}});
  engine::Engine engine(model, plan, engine::connect(plan, {.name = ""}));
  train::load_run(engine, model, folder, *engine.communicators().world);
  const auto load = [&](int, const at::Tensor& inputs, const at::Tensor& targets) {
    for (int64_t i = 0; i < count; ++i) {
      inputs.data_ptr<int64_t>()[i] = tokens[i];
      targets.data_ptr<int64_t>()[i] = tokens[i + 1];
    }
  };
  return engine.evaluate(load, count);
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) try {
  if (argc < 5) throw trireme::UsageError("print_logits CHECKPOINT OUT TOKEN TOKEN...");
  std::vector<int64_t> tokens;
  for (int i = 3; i < argc; ++i) tokens.push_back(std::stoll(argv[i]));
  const auto generator = trireme::train::open_generator(argv[1], {at::kFloat, at::kFloat});
  std::ofstream out(argv[2], std::ios::binary);
  for (const int64_t token : tokens) {
    const at::Tensor logits = generator->next_logits(token).to(at::kFloat).contiguous();
    out.write(static_cast<const char*>(logits.const_data_ptr()), static_cast<std::streamsize>(logits.nbytes()));
  }
  out.close();
  fmt::print("{:.9f}\n", trireme::training_loss(argv[1], tokens));
  return out ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
