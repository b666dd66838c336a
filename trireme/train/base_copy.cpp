#include "trireme/train/base_copy.h"

#include <filesystem>

#include "trireme/checkpoint/inspect.h"

namespace trireme::train {

void add_base(checkpoint::SaveRequest& request, std::shared_ptr<const checkpoint::Checkpoint> base,
              const std::string& index_json, const plan::StepRequest& step) {
  int64_t number = 0;
  for (const auto& [name, stored] : base->tensors) {
    const std::filesystem::path& file = base->files[static_cast<size_t>(stored.file)]->path();
    if (checkpoint::is_optimizer_file(file)) continue;
    request.base.push_back({name, stored.shape, stored.dtype});
    request.base_files[name] = file.filename().string();
    if (number++ % step.mesh.world_size() != step.rank) continue;
    request.pieces.push_back({.tensor = name,
                              .begin = 0,
                              .end = stored.elements,
                              .dtype = stored.dtype,
                              .fill = [base, name = name, dtype = stored.dtype](int64_t begin, int64_t end, void* to) {
                                checkpoint::read_piece(*base, {name, begin, end, to, dtype});
                              }});
  }
  request.base_index_json = index_json;
  request.config_json = checkpoint::read_text(*base, "config.json");
}

}  // namespace trireme::train
