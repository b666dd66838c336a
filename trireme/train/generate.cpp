#include "trireme/train/generate.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/checkpoint/folders.h"
#include "trireme/checkpoint/load.h"
#include "trireme/data/utf8_stream.h"
#include "trireme/train/checkpointing.h"
#include "trireme/train/setup.h"

namespace trireme::train {
namespace fs = std::filesystem;

std::unique_ptr<model::Generator> open_generator(const fs::path& folder, const model::Precision& precision) {
  const fs::path path = checkpoint::find_latest(folder).value_or(folder);
  if (!fs::exists(path))
    throw UsageError(fmt::format("there is no folder {}: give a checkpoint, or a run's out_dir", folder.string()));
  const checkpoint::Checkpoint c = checkpoint::open_checkpoint(path);
  const model::ModelConfig config =
      model::parse_hugging_face_config(checkpoint::read_text(c, "config.json"), (path / "config.json").string());
  return std::make_unique<model::Generator>(
      config, precision, [&](const model::ParameterSpec& p, const at::Tensor& tensor) {
        const checkpoint::PieceRequest request{p.name, 0, p.numel(), tensor.data_ptr(), dtype_of(tensor.scalar_type())};
        checkpoint::read_pieces(c, {&request, 1});
      });
}

int generate(const config::Settings& settings, const std::function<void(std::string_view)>& write) {
  const config::GenerateSettings& g = settings.generate;
  const auto generator = open_generator(g.checkpoint, {at::kFloat, at::kFloat});
  const auto tokenizer =
      checkpoint_tokenizer(checkpoint::find_latest(g.checkpoint).value_or(g.checkpoint), generator->config());
  std::vector<int64_t> prompt;
  for (int32_t id : tokenizer->encode(g.prompt.empty() ? "\n" : g.prompt, {.add_special = true})) prompt.push_back(id);
  write(g.prompt);
  data::Utf8Stream stream;
  generator->generate(
      prompt, g.max_new_tokens,
      {.temperature = g.temperature, .top_k = g.top_k, .top_p = g.top_p, .seed = static_cast<uint64_t>(g.seed)},
      [&](int64_t token) {
        const int32_t id = static_cast<int32_t>(token);
        if (tokenizer->eos_id() == id) return false;
        write(stream.push(tokenizer->token_bytes(id)));
        return true;
      });
  write(stream.finish());
  write("\n");
  return 0;
}

}  // namespace trireme::train
