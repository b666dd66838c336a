#include "trireme/checkpoint/piece_writer.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "trireme/base/checksum.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/disk.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/staged_file.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Contiguous bytes of a file and where they come from.
struct Segment {
  int64_t begin = 0;  ///< in the file
  int64_t bytes = 0;
  const std::byte* memory = nullptr;
  const Piece* piece = nullptr;            ///< set if its elements come from a function
  Dtype from = Dtype::u8, to = Dtype::u8;  ///< of memory and file
  bool written = true;                     ///< false: another rank writes it, this one only hashes it
};

base::FileDescriptor open_shared(const fs::path& path) try {
  return base::open_file(path, O_RDWR);
} catch (const base::FileError& error) {
  if (error.code != ENOENT) throw;
  throw CheckpointError(fmt::format("rank 0 made {} for this save, but this rank does not see it: --out_dir must be "
                                    "on a file system that all ranks share, and nothing may remove its folders",
                                    path.string()),
                        path.string());
}

/// Writes this rank's segments of one file, and hashes the blocks that it knows completely.
class FileWriter {
 public:
  FileWriter(const fs::path& path, int64_t file_bytes, int64_t first_block, StageBuffer& buffer,
             std::vector<BlockHash>& hashes)
      : file_(open_shared(path), path, buffer), file_bytes_(file_bytes), first_block_(first_block), hashes_(hashes) {}

  /// Takes segments in the order of the file.
  void put(const Segment& segment, const std::function<bool(int64_t bytes)>& go_on) {
    if (segment.begin != position_) begin_run(segment.begin);
    for (int64_t done = 0; done < segment.bytes;) {
      // To the end of the block. No element is cut: files begin every tensor at a multiple of its element.
      const int64_t block = position_ / kBlockBytes;
      const int64_t block_end = std::min((block + 1) * kBlockBytes, file_bytes_);
      const int64_t count = std::min(block_end - position_, segment.bytes - done);
      const std::span<const std::byte> bytes =
          segment.written ? staged(segment, done, count) : std::span(segment.memory + done, static_cast<size_t>(count));
      hash(block, block_end, bytes);
      position_ += count;
      done += count;
      if (!go_on(segment.written ? count : 0)) return;
    }
  }

  void flush() { file_.flush(); }

 private:
  void begin_run(int64_t position) {
    position_ = position;
    whole_ = position % kBlockBytes == 0;
    sum_.reset();
  }

  std::span<const std::byte> staged(const Segment& s, int64_t done, int64_t count) {
    const std::span<std::byte> room = file_.room(position_, count);
    const int64_t to = size_of(s.to), from = size_of(s.from);
    if (s.piece != nullptr) {
      const int64_t first = s.piece->begin + done / to;
      s.piece->fill(first, first + count / to, room.data());
    } else if (s.from == s.to) {
      std::memcpy(room.data(), s.memory + done, room.size());
    } else {
      convert(s.memory + done / to * from, s.from, room.data(), s.to, count / to);
    }
    return room;
  }

  void hash(int64_t block, int64_t block_end, std::span<const std::byte> bytes) {
    const bool at_begin = position_ % kBlockBytes == 0;
    const bool at_end = position_ + std::ssize(bytes) == block_end;
    if (at_begin) whole_ = true;
    if (!whole_) return;
    if (at_begin && at_end) {
      hashes_.push_back({first_block_ + block, base::checksum(bytes)});
      return;
    }
    if (!sum_) sum_.emplace();
    sum_->update(bytes);
    if (!at_end) return;
    hashes_.push_back({first_block_ + block, sum_->value()});
    sum_.reset();
  }

  StagedFile file_;
  int64_t file_bytes_, first_block_;
  std::vector<BlockHash>& hashes_;
  int64_t position_ = 0;               // end of what was put
  bool whole_ = true;                  // the block at position_ was put from its first byte on
  std::optional<base::Checksum> sum_;  // of that block
};

/// For each file, the segments that this rank knows, in order.
std::vector<std::vector<Segment>> segments_of(const SavePlan& plan, std::span<const Piece> pieces, bool with_headers) {
  std::vector<std::vector<Segment>> files(plan.files.size());
  for (const Piece& piece : pieces) {
    if (piece.begin == piece.end) continue;
    const TensorPlace& place = plan.tensors.at(piece.tensor);
    const int64_t size = size_of(place.spec.dtype);
    files[place.file].push_back({.begin = place.begin + piece.begin * size,
                                 .bytes = (piece.end - piece.begin) * size,
                                 .memory = static_cast<const std::byte*>(piece.data),
                                 .piece = piece.fill ? &piece : nullptr,
                                 .from = piece.dtype,
                                 .to = place.spec.dtype});
  }
  for (size_t i = 0; i < files.size(); ++i) {
    if (files[i].empty() && !with_headers) continue;
    // Another rank writes and hashes the header's whole blocks; here only its end shares a block with pieces.
    const std::string& header = plan.files[i].header;
    const int64_t begin = with_headers ? 0 : std::ssize(header) / kBlockBytes * kBlockBytes;
    files[i].push_back({.begin = begin,
                        .bytes = std::ssize(header) - begin,
                        .memory = reinterpret_cast<const std::byte*>(header.data()) + begin,
                        .written = with_headers});
    std::sort(files[i].begin(), files[i].end(), [](const Segment& a, const Segment& b) { return a.begin < b.begin; });
  }
  return files;
}

}  // namespace

std::vector<BlockHash> write_pieces(const SavePlan& plan, const fs::path& folder, std::span<const Piece> pieces,
                                    bool with_headers, const BytesDone& done, std::stop_token stop) {
  const std::vector<std::vector<Segment>> files = segments_of(plan, pieces, with_headers);
  int64_t total = 0, written = 0;
  for (const auto& segments : files)
    for (const Segment& s : segments) total += s.written ? s.bytes : 0;
  const auto go_on = [&](int64_t bytes) {
    written += bytes;
    if (done) done(written, total);
    return !stop.stop_requested();
  };
  std::vector<BlockHash> hashes;
  StageBuffer buffer;
  for (size_t i = 0; i < files.size(); ++i) {
    if (files[i].empty()) continue;
    const fs::path path = folder / plan.files[i].name;
    FileWriter writer(path, plan.files[i].bytes, plan.first_block[i], buffer, hashes);
    for (const Segment& segment : files[i]) {
      if (stop.stop_requested()) return hashes;
      writer.put(segment, go_on);
    }
    writer.flush();
  }
  return hashes;
}

std::vector<BlockHash> hash_blocks(const SavePlan& plan, const fs::path& folder, std::span<const int64_t> blocks,
                                   const BytesDone& done, std::stop_token stop) {
  std::vector<BlockHash> hashes;
  std::vector<std::byte> buffer(kBlockBytes);
  size_t next = 0;
  for (size_t i = 0; i < plan.files.size() && next < blocks.size(); ++i) {
    if (blocks[next] >= plan.first_block[i + 1]) continue;
    const fs::path path = folder / plan.files[i].name;
    const base::FileDescriptor file = open_shared(path);
    for (; next < blocks.size() && blocks[next] < plan.first_block[i + 1] && !stop.stop_requested(); ++next) {
      const int64_t offset = (blocks[next] - plan.first_block[i]) * kBlockBytes;
      const std::span<std::byte> bytes = std::span(buffer).first(std::min(kBlockBytes, plan.files[i].bytes - offset));
      base::read_at(file, bytes, offset, path);
      hashes.push_back({blocks[next], base::checksum(bytes)});
      if (done) done(static_cast<int64_t>(next + 1) * kBlockBytes, std::ssize(blocks) * kBlockBytes);
    }
  }
  return hashes;
}

}  // namespace trireme::checkpoint
