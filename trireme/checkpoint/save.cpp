#include "trireme/checkpoint/save.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <tuple>

#include "trireme/base/checksum.h"
#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/agree.h"
#include "trireme/checkpoint/coverage.h"
#include "trireme/checkpoint/disk.h"
#include "trireme/checkpoint/folders.h"
#include "trireme/checkpoint/manifest.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int64_t kChunkBytes = 4 << 20;

/// Calls the request's progress function, at most once a second and not in short saves.
class Meter {
 public:
  explicit Meter(const SaveRequest& request) : request_(request), next_(Clock::now() + request.progress_after) {}

  void report(const char* phase, int64_t done_bytes, int64_t total_bytes) {
    if (!request_.progress || Clock::now() < next_) return;
    next_ = Clock::now() + std::min<std::chrono::milliseconds>(std::chrono::seconds(1), request_.progress_after);
    request_.progress({.phase = phase, .done_bytes = done_bytes, .total_bytes = total_bytes});
  }

 private:
  const SaveRequest& request_;
  Clock::time_point next_;
};

/// One save on one rank, in the order of its methods.
class Save {
 public:
  Save(const SaveRequest& request, comm::Communicator& world) : request_(request), world_(world), meter_(request) {}

  SaveResult run() {
    const Clock::time_point start = Clock::now();
    agree(world_, [&] { plan(); });
    check_coverage();
    agree(world_, [&] {
      if (world_.rank() == 0) prepare();
    });
    share_folder();
    agree(world_, [&] { with_file_errors([&] { write_pieces(); }); });
    agree(world_, [&] { with_file_errors([&] { hash_my_blocks(); }); });
    const std::vector<uint64_t> hashes = gather_hashes();
    SaveResult result{.path = request_.out_dir / step_folder_name(request_.step), .bytes = needed_bytes_};
    agree(world_, [&] {
      if (world_.rank() == 0) with_file_errors([&] { publish(hashes, result.path); });
    });
    if (world_.rank() == 0) retire_old(result);
    result.seconds = Clock::now() - start;
    return result;
  }

 private:
  /// Layout of all files and the checks that need no other rank.
  void plan() {
    if (request_.step < 0)
      throw CheckpointError(fmt::format("cannot save step {}: steps begin at 0", request_.step), "");
    add_layout(plan_model_files(request_.model, request_.max_shard_bytes, request_.files, request_.index_json));
    add_layout(plan_optimizer_files(request_.optimizer, request_.max_shard_bytes));
    for (const Piece& piece : request_.pieces) check_piece(piece, tensors_);
    add_text("config.json", request_.config_json);
    add_text("generation_config.json", request_.generation_config_json);
    add_text(kStateName, request_.state_json.empty() ? "{}" : request_.state_json);
    for (const auto& [name, bytes] : request_.extra_files) {
      if (!is_plain_name(name))
        throw CheckpointError(fmt::format("'{}' is not a name for a file of a checkpoint", name), name);
      if (name == kManifestName || name.ends_with(".safetensors") || !texts_.emplace(name, bytes).second) {
        throw CheckpointError(fmt::format("the extra file '{}' would replace one of the checkpoint's own", name), name);
      }
    }
    for (const FilePlan& file : files_) needed_bytes_ += file.bytes + 21 * num_blocks(file.bytes);
    for (const auto& [name, bytes] : texts_) needed_bytes_ += static_cast<int64_t>(bytes.size());
    // Blocks of the file system are filled up, and folder and manifest have theirs.
    needed_bytes_ += 4096 * static_cast<int64_t>(files_.size() + texts_.size() + 2);
  }

  void add_layout(const Layout& layout) {
    const int first = static_cast<int>(files_.size());
    for (auto [name, place] : layout.tensors) {
      place.file += first;
      if (!tensors_.emplace(name, place).second) {
        throw CheckpointError(fmt::format("tensor name '{}' is given to the model and to the optimizer", name), "",
                              name);
      }
    }
    files_.insert(files_.end(), layout.files.begin(), layout.files.end());
    if (!layout.index_name.empty()) texts_.emplace(layout.index_name, layout.index_json);
  }

  void add_text(const std::string& name, const std::string& json_text) {
    if (json_text.empty()) return;
    if (!nlohmann::json::accept(json_text))
      throw CheckpointError(fmt::format("the text for {} is not JSON", name), name);
    texts_.emplace(name, json_text);
  }

  /// Every element exactly once, over all ranks; and the same plan on all of them.
  void check_coverage() {
    base::Checksum plan;
    for (const FilePlan& file : files_) {
      plan.update(std::as_bytes(std::span(file.name)));
      plan.update(std::as_bytes(std::span(file.header)));
    }
    plan.update(std::as_bytes(std::span(&request_.step, 1)));
    const std::vector<int64_t> mine = pack_pieces(request_.pieces, tensors_);
    const int64_t sizes[2] = {static_cast<int64_t>(mine.size()), std::bit_cast<int64_t>(plan.value())};
    const std::vector<int64_t> all_sizes = gather_numbers(sizes, std::vector<int64_t>(world_.size(), 2), true);
    std::vector<int64_t> counts;
    for (int rank = 0; rank < world_.size(); ++rank) counts.push_back(all_sizes[2 * rank]);
    const std::vector<int64_t> all_pieces = gather_numbers(mine, counts, false);
    agree(world_, [&] {
      if (world_.rank() != 0) return;
      for (int rank = 1; rank < world_.size(); ++rank) {
        if (all_sizes[2 * rank + 1] != sizes[1]) {
          throw CheckpointError(
              fmt::format("cannot save step {}: rank {} has other tensors, shapes, dtypes, file limit or "
                          "step than rank 0",
                          request_.step, rank),
              request_.out_dir.string());
        }
      }
      check_exactly_once(tensors_, all_pieces, counts);
    });
  }

  /// Joins the ranks' numbers in rank order: on every rank, or on rank 0 (empty elsewhere).
  std::vector<int64_t> gather_numbers(std::span<const int64_t> mine, const std::vector<int64_t>& counts,
                                      bool everywhere) {
    at::Tensor input = at::empty({static_cast<int64_t>(mine.size())}, at::kLong);
    std::copy(mine.begin(), mine.end(), input.data_ptr<int64_t>());
    int64_t total = 0;
    for (const int64_t count : counts) total += count;
    const bool receives = everywhere || world_.rank() == 0;
    at::Tensor output = receives ? at::empty({total}, at::kLong) : at::Tensor();
    if (everywhere) {
      world_.all_gather(output, input, counts)->wait();
    } else {
      world_.gather(output, input, counts, 0)->wait();
    }
    if (!receives) return {};
    const int64_t* begin = output.const_data_ptr<int64_t>();
    return {begin, begin + total};
  }

  /// Rank 0: the folder with all tensor files at full size, headers written.
  void prepare() {
    translate_file_errors(request_.out_dir, needed_bytes_, [&] {
      fs::create_directories(request_.out_dir);
      remove_leftovers(request_.out_dir);
      if (base::free_disk_bytes(request_.out_dir) < needed_bytes_) throw_disk_full(request_.out_dir, needed_bytes_);
      temporary_ = std::make_unique<TemporaryFolder>(request_.out_dir, step_folder_name(request_.step));
      folder_ = temporary_->path();
      for (const FilePlan& plan : files_) {
        const fs::path path = folder_ / plan.name;
        const base::FileDescriptor file = create_file(path, plan.bytes);
        base::write_at(file, std::as_bytes(std::span(plan.header)), 0, path);
        flush(file, path);
      }
    });
  }

  void share_folder() {
    std::string name = folder_.filename().string();
    at::Tensor length = at::full({1}, static_cast<int64_t>(name.size()), at::kLong);
    world_.broadcast(length, 0)->wait();
    at::Tensor bytes = at::empty({length.item<int64_t>()}, at::kByte);
    if (world_.rank() == 0) std::memcpy(bytes.data_ptr(), name.data(), name.size());
    world_.broadcast(bytes, 0)->wait();
    name.assign(static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(bytes.numel()));
    folder_ = request_.out_dir / name;
  }

  void with_file_errors(const std::function<void()>& work) {
    translate_file_errors(request_.out_dir, needed_bytes_, work);
  }

  base::FileDescriptor open_shared(const fs::path& path) {
    if (!fs::exists(path)) {
      throw CheckpointError(
          fmt::format("{} was made by rank 0, but rank {} does not see it: --out_dir must be on a file "
                      "system that all ranks share",
                      path.string(), world_.rank()),
          path.string());
    }
    return base::open_file(path, O_RDWR);
  }

  void write_pieces() {
    std::vector<std::pair<const TensorPlace*, const Piece*>> ordered;
    for (const Piece& piece : request_.pieces) {
      const TensorPlace& place = tensors_.at(piece.tensor);
      if (piece.begin == piece.end) continue;
      ordered.emplace_back(&place, &piece);
      my_bytes_ += (piece.end - piece.begin) * size_of(place.spec.dtype);
    }
    std::sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
      return std::tuple(a.first->file, a.first->begin, a.second->begin) <
             std::tuple(b.first->file, b.first->begin, b.second->begin);
    });
    for (size_t i = 0; i < ordered.size();) {
      const int file_index = ordered[i].first->file;
      const fs::path path = folder_ / files_[static_cast<size_t>(file_index)].name;
      const base::FileDescriptor file = open_shared(path);
      for (; i < ordered.size() && ordered[i].first->file == file_index; ++i) {
        write_piece(file, path, *ordered[i].first, *ordered[i].second);
      }
      flush(file, path);
    }
  }

  void write_piece(const base::FileDescriptor& file, const fs::path& path, const TensorPlace& place,
                   const Piece& piece) {
    const int64_t file_size = size_of(place.spec.dtype);
    const int64_t memory_size = size_of(piece.dtype);
    const auto* source = static_cast<const std::byte*>(piece.data);
    const bool same = place.spec.dtype == piece.dtype;
    std::vector<std::byte> buffer(
        same ? 0 : static_cast<size_t>(std::min(kChunkBytes, (piece.end - piece.begin) * file_size)));
    const int64_t chunk = kChunkBytes / file_size;
    for (int64_t element = piece.begin; element < piece.end; element += chunk) {
      const int64_t count = std::min(chunk, piece.end - element);
      const std::byte* elements = source + (element - piece.begin) * memory_size;
      if (!same) convert(elements, piece.dtype, buffer.data(), place.spec.dtype, count);
      const auto bytes = static_cast<size_t>(count * file_size);
      base::write_at(file, {same ? elements : buffer.data(), bytes}, place.begin + element * file_size, path);
      written_bytes_ += static_cast<int64_t>(bytes);
      meter_.report("write", written_bytes_, my_bytes_);
    }
  }

  /// Blocks of all tensor files, counted through, dealt to the ranks in equal runs.
  void hash_my_blocks() {
    const auto [begin, end] = block_share(world_.rank());
    std::vector<std::byte> buffer(static_cast<size_t>(kBlockBytes));
    int64_t first = 0;  // number of the file's first block
    for (const FilePlan& plan : files_) {
      const int64_t last = first + num_blocks(plan.bytes);
      if (std::max(begin, first) < std::min(end, last)) {
        const fs::path path = folder_ / plan.name;
        const base::FileDescriptor file = open_shared(path);
        for (int64_t block = std::max(begin, first); block < std::min(end, last); ++block) {
          const int64_t offset = (block - first) * kBlockBytes;
          const auto bytes = static_cast<size_t>(std::min(kBlockBytes, plan.bytes - offset));
          base::read_at(file, std::span(buffer).first(bytes), offset, path);
          my_hashes_.push_back(std::bit_cast<int64_t>(base::checksum(std::span(buffer).first(bytes))));
          meter_.report("checksum", (block - begin) * kBlockBytes, (end - begin) * kBlockBytes);
        }
      }
      first = last;
    }
  }

  std::pair<int64_t, int64_t> block_share(int rank) const {
    int64_t total = 0;
    for (const FilePlan& plan : files_) total += num_blocks(plan.bytes);
    return {total * rank / world_.size(), total * (rank + 1) / world_.size()};
  }

  std::vector<uint64_t> gather_hashes() {
    std::vector<int64_t> counts;
    for (int rank = 0; rank < world_.size(); ++rank) {
      const auto [begin, end] = block_share(rank);
      counts.push_back(end - begin);
    }
    const std::vector<int64_t> all = gather_numbers(my_hashes_, counts, false);
    return {all.begin(), all.end()};
  }

  /// Rank 0: the small files and the manifest, then the rename.
  void publish(const std::vector<uint64_t>& hashes, const fs::path& target) {
    Manifest manifest{.step = request_.step};
    auto hash = hashes.begin();
    for (const FilePlan& plan : files_) {
      const auto end = hash + num_blocks(plan.bytes);
      manifest.files[plan.name] = {.bytes = plan.bytes, .blocks = {hash, end}};
      hash = end;
    }
    for (const auto& [name, text] : texts_) {
      write_new_file(folder_ / name, text);
      manifest.files[name] = describe(text);
    }
    write_new_file(folder_ / kManifestName, manifest_to_json(manifest));
    temporary_->publish(target);
  }

  /// Rank 0: the save has succeeded already, so trouble here is a warning.
  void retire_old(SaveResult& result) {
    try {
      temporary_.reset();
      result.removed = keep_last_checkpoints(request_.out_dir, request_.step, request_.keep_last);
    } catch (const std::exception& error) {
      result.warnings.push_back(error.what());
    }
  }

  const SaveRequest& request_;
  comm::Communicator& world_;
  Meter meter_;
  std::vector<FilePlan> files_;                 // model's, then the optimizer's
  std::map<std::string, TensorPlace> tensors_;  // of both
  std::map<std::string, std::string> texts_;    // small files, written by rank 0
  int64_t needed_bytes_ = 0;
  fs::path folder_;                              // the unfinished folder, on every rank
  std::unique_ptr<TemporaryFolder> temporary_;   // rank 0's hold on it: gone with any exception
  int64_t my_bytes_ = 0;
  int64_t written_bytes_ = 0;
  std::vector<int64_t> my_hashes_;
};

}  // namespace

SaveResult save_checkpoint(const SaveRequest& request, comm::Communicator& world) { return Save(request, world).run(); }

}  // namespace trireme::checkpoint
