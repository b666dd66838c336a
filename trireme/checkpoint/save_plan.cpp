#include "trireme/checkpoint/save_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <span>
#include <tuple>

#include "trireme/base/checksum.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/agree.h"
#include "trireme/checkpoint/manifest.h"

namespace trireme::checkpoint {
namespace {

struct Range {
  int64_t tensor;
  int64_t begin;
  int64_t end;
  int rank;
};

[[noreturn]] void refuse_tensor(const std::string& tensor, const std::string& problem) {
  throw CheckpointError(fmt::format("cannot save tensor '{}': {}", tensor, problem), "", tensor);
}

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
  const int64_t bytes = plan.file_bytes() + kHashText * plan.num_blocks();
  // Every file takes whole blocks of the file system, and so do the folder and the manifest.
  return bytes + kFileSystemBlock * static_cast<int64_t>(plan.files.size() + plan.texts.size() + 2);
}

/// Errors    CheckpointError: unknown tensor, range outside it, dtypes that do not convert
void check_piece(const Piece& piece, const std::map<std::string, TensorPlace>& tensors) {
  const auto found = tensors.find(piece.tensor);
  if (found == tensors.end())
    refuse_tensor(piece.tensor, "a piece of it is given, but the checkpoint is to hold no such tensor");
  const TensorPlace& place = found->second;
  if (piece.begin < 0 || piece.begin > piece.end || piece.end > place.elements)
    refuse_tensor(piece.tensor, fmt::format("a piece has elements {} to {}, but its shape is {}", piece.begin,
                                            piece.end, shape_text(place.spec.shape)));
  if (!convertible(piece.dtype, place.spec.dtype))
    refuse_tensor(
        piece.tensor,
        fmt::format(
            "{} in memory does not convert to {} in the file: only F64, F32, F16 and BF16 convert into each other",
            dtype_name(piece.dtype), dtype_name(place.spec.dtype)));
}

/// Pieces as numbers to be gathered: (position of the tensor in the map, begin, end), without empty ones.
std::vector<int64_t> pack_pieces(std::span<const Piece> pieces, const std::map<std::string, TensorPlace>& tensors) {
  std::map<std::string_view, int64_t> positions;
  for (const auto& [name, place] : tensors) positions.emplace(name, std::ssize(positions));
  std::vector<int64_t> packed;
  for (const Piece& piece : pieces) {
    if (piece.begin == piece.end) continue;
    packed.insert(packed.end(), {positions.at(piece.tensor), piece.begin, piece.end});
  }
  return packed;
}

/// A gap would save zeros, and an overlap would save the data of the rank that wrote last. `packed` holds the packed
/// pieces of rank after rank, counts[rank] numbers each.
/// Errors    CheckpointError naming the tensor, the elements and, for an overlap, both ranks
void check_exactly_once(const std::map<std::string, TensorPlace>& tensors, std::span<const int64_t> packed,
                        std::span<const int64_t> counts) {
  std::vector<Range> ranges;
  for (size_t rank = 0, at = 0; rank < counts.size(); ++rank)
    for (const size_t end = at + static_cast<size_t>(counts[rank]); at < end; at += 3)
      ranges.push_back({packed[at], packed[at + 1], packed[at + 2], static_cast<int>(rank)});
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
    return std::tuple(a.tensor, a.begin, a.rank) < std::tuple(b.tensor, b.begin, b.rank);
  });
  auto range = ranges.begin();
  int64_t number = 0;
  for (const auto& [name, place] : tensors) {
    int64_t covered = 0;
    int last_rank = 0;
    for (; range != ranges.end() && range->tensor == number; ++range) {
      if (range->begin > covered) break;
      if (range->begin < covered)
        refuse_tensor(
            name, fmt::format(
                      "elements {} to {} are given by rank {} and by rank {}; each element must come from exactly one",
                      range->begin, std::min(covered, range->end), last_rank, range->rank));
      covered = range->end;
      last_rank = range->rank;
    }
    if (covered < place.elements) {
      const bool more = range != ranges.end() && range->tensor == number;
      refuse_tensor(name,
                    fmt::format("no rank gives elements {} to {}", covered, more ? range->begin : place.elements));
    }
    ++number;
  }
}

}  // namespace

int64_t SavePlan::file_bytes() const {
  int64_t bytes = 0;
  for (const FilePlan& file : files) bytes += file.bytes;
  for (const auto& [name, text] : texts) bytes += std::ssize(text);
  return bytes;
}

SavePlan plan_save(const SaveRequest& request) {
  if (request.step < 0) throw CheckpointError(fmt::format("cannot save step {}: steps begin at 0", request.step), "");
  SavePlan plan;
  add_layout(plan,
             plan_model_files(request.model, request.max_shard_bytes, request.files, request.index_json, request.stem));
  if (!request.base.empty())
    add_layout(plan,
               plan_model_files(request.base, request.max_shard_bytes, request.base_files, request.base_index_json));
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
  const int64_t sizes[2] = {std::ssize(mine), std::bit_cast<int64_t>(sum.value())};
  const std::vector<int64_t> all_sizes = all_gather_numbers(world, sizes, std::vector<int64_t>(world.size(), 2));
  std::vector<int64_t> counts;
  for (int rank = 0; rank < world.size(); ++rank) counts.push_back(all_sizes[2 * rank]);
  const std::vector<int64_t> all_pieces = gather_numbers(world, mine, counts);
  agree(world, [&] {
    if (world.rank() != 0) return;
    for (int rank = 1; rank < world.size(); ++rank)
      if (all_sizes[2 * rank + 1] != sizes[1])
        throw CheckpointError(
            fmt::format(
                "cannot save step {}: rank {} has other tensors, shapes, dtypes, file limit or step than rank 0",
                request.step, rank),
            request.out_dir.string());
    check_exactly_once(plan.tensors, all_pieces, counts);
  });
}

}  // namespace trireme::checkpoint
