#include "trireme/checkpoint/save_plan.h"

#include <fmt/format.h>

#include <bit>
#include <nlohmann/json.hpp>

#include "trireme/base/checksum.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/agree.h"
#include "trireme/checkpoint/coverage.h"
#include "trireme/checkpoint/gather.h"
#include "trireme/checkpoint/manifest.h"

namespace trireme::checkpoint {
namespace {

void add_layout(SavePlan& plan, const Layout& layout) {
  const int first = static_cast<int>(plan.files.size());
  for (auto [name, place] : layout.tensors) {
    place.file += first;
    if (!plan.tensors.emplace(name, place).second)
      throw CheckpointError(fmt::format("tensor name '{}' is given to the model and to the optimizer", name), "", name);
  }
  plan.files.insert(plan.files.end(), layout.files.begin(), layout.files.end());
  if (!layout.index_name.empty()) plan.texts.emplace(layout.index_name, layout.index_json);
}

void add_json(SavePlan& plan, const std::string& name, const std::string& json_text) {
  if (json_text.empty()) return;
  if (!nlohmann::json::accept(json_text)) throw CheckpointError(fmt::format("the text for {} is not JSON", name), name);
  plan.texts.emplace(name, json_text);
}

void add_extra(SavePlan& plan, const std::string& name, const std::string& bytes) {
  if (!is_plain_name(name))
    throw CheckpointError(fmt::format("'{}' is not a name for a file of a checkpoint", name), name);
  if (name == kManifestName || name.ends_with(".safetensors") || !plan.texts.emplace(name, bytes).second)
    throw CheckpointError(fmt::format("the extra file '{}' would replace one of the checkpoint's own", name), name);
}

int64_t bytes_on_disk(const SavePlan& plan) {
  constexpr int64_t kHashText = 21, kFileSystemBlock = 4096;
  int64_t bytes = kHashText * plan.num_blocks();
  for (const FilePlan& file : plan.files) bytes += file.bytes;
  for (const auto& [name, text] : plan.texts) bytes += static_cast<int64_t>(text.size());
  // Blocks of the file system are filled up, and folder and manifest have theirs.
  return bytes + kFileSystemBlock * static_cast<int64_t>(plan.files.size() + plan.texts.size() + 2);
}

}  // namespace

SavePlan plan_save(const SaveRequest& request) {
  if (request.step < 0) throw CheckpointError(fmt::format("cannot save step {}: steps begin at 0", request.step), "");
  SavePlan plan;
  add_layout(plan, plan_model_files(request.model, request.max_shard_bytes, request.files, request.index_json));
  add_layout(plan, plan_optimizer_files(request.optimizer, request.max_shard_bytes));
  for (const Piece& piece : request.pieces) check_piece(piece, plan.tensors);
  add_json(plan, "config.json", request.config_json);
  add_json(plan, "generation_config.json", request.generation_config_json);
  add_json(plan, kStateName, request.state_json);
  for (const auto& [name, bytes] : request.extra_files) add_extra(plan, name, bytes);
  plan.first_block.push_back(0);
  for (const FilePlan& file : plan.files) plan.first_block.push_back(plan.num_blocks() + num_blocks(file.bytes));
  plan.needed_bytes = bytes_on_disk(plan);
  return plan;
}

void agree_on_plan(const SaveRequest& request, const SavePlan& plan, comm::Communicator& world) {
  base::Checksum sum;
  for (const FilePlan& file : plan.files) {
    sum.update(std::as_bytes(std::span(file.name)));
    sum.update(std::as_bytes(std::span(file.header)));
  }
  sum.update(std::as_bytes(std::span(&request.step, 1)));
  const std::vector<int64_t> mine = pack_pieces(request.pieces, plan.tensors);
  const int64_t sizes[2] = {static_cast<int64_t>(mine.size()), std::bit_cast<int64_t>(sum.value())};
  const std::vector<int64_t> all_sizes = all_gather_numbers(world, sizes, std::vector<int64_t>(world.size(), 2));
  std::vector<int64_t> counts;
  for (int rank = 0; rank < world.size(); ++rank) counts.push_back(all_sizes[2 * rank]);
  const std::vector<int64_t> all_pieces = gather_numbers(world, mine, counts);
  agree(world, [&] {
    if (world.rank() != 0) return;
    for (int rank = 1; rank < world.size(); ++rank) {
      if (all_sizes[2 * rank + 1] != sizes[1])
        throw CheckpointError(fmt::format("cannot save step {}: rank {} has other tensors, shapes, dtypes, file limit "
                                          "or step than rank 0",
                                          request.step, rank),
                              request.out_dir.string());
    }
    check_exactly_once(plan.tensors, all_pieces, counts);
  });
}

}  // namespace trireme::checkpoint
