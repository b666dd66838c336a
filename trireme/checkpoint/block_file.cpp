#include "trireme/checkpoint/block_file.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "trireme/base/checksum.h"
#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/disk.h"
#include "trireme/checkpoint/good.h"
#include "trireme/checkpoint/safetensors.h"

namespace trireme::checkpoint {

void throw_damaged(const std::filesystem::path& folder, const std::string& problem, const std::filesystem::path& file,
                   const std::string& tensor, Advice advice) {
  std::string words;
  if (advice == Advice::name_older) {
    const std::optional<std::filesystem::path> older = find_older(folder);
    words =
        older ? "; the next older good one is " + older->string() : std::string("; no older good one lies beside it");
  }
  throw DamagedError(fmt::format("the checkpoint {} is damaged: {}{}{}", folder.string(), problem,
                                 tensor.empty() ? "" : fmt::format(" (found reading tensor '{}')", tensor), words),
                     file.string(), tensor);
}

void throw_refused(const base::FileError& error, Advice advice) {
  const std::filesystem::path& file = error.path;
  if (error.code == ENOENT)
    throw_damaged(file.parent_path(), file.filename().string() + " is missing", file, "", advice);
  if (error.code == EIO) throw_damaged(file.parent_path(), error.what(), file, "", advice);
  throw UnreadableError(fmt::format("the checkpoint {} cannot be read: {}", file.parent_path().string(), error.what()),
                        file.string());
}

BlockFile::BlockFile(const std::filesystem::path& path, std::optional<ManifestFile> expected, Advice advice)
    : path_(path), expected_(std::move(expected)), advice_(advice) {
  const std::string name = path.filename().string();
  try {
    file_ = base::open_file(path, O_RDONLY);
    bytes_ = file_bytes(file_, path);
  } catch (const base::FileError& error) {
    throw_refused(error, advice);
  }
  if (!expected_) return;
  if (bytes_ != expected_->bytes)
    throw_damaged(
        path.parent_path(),
        fmt::format("{} has {}, but {} were saved{}", name, base::plural(bytes_, "byte"),
                    base::human_count(expected_->bytes), bytes_ < expected_->bytes ? " (it is truncated)" : ""),
        path, "", advice);
  verified_ = std::make_unique<std::atomic<bool>[]>(static_cast<size_t>(num_blocks(bytes_)));
}

int64_t BlockFile::block_end(int64_t block) const { return std::min((block + 1) * kBlockBytes, bytes_); }

std::optional<std::string> BlockFile::check_block(int64_t block, std::span<const std::byte> bytes) const {
  if (!expected_) return std::nullopt;
  if (base::checksum(bytes) != expected_->blocks[block]) return name_of(block) + " does not match its checksum";
  verified_[block] = true;
  return std::nullopt;
}

std::string BlockFile::name_of(int64_t block) const {
  return fmt::format("{}, block {} (bytes {} to {})", path_.filename().string(), block, block * kBlockBytes,
                     block_end(block));
}

std::optional<std::string> BlockFile::read_block(int64_t block, std::span<std::byte> target) const {
  const int64_t begin = block * kBlockBytes;
  target = target.first(block_end(block) - begin);
  try {
    base::read_at(file_, target, begin, path_);
  } catch (const base::FileError& error) {
    return fmt::format("{} cannot be read ({})", name_of(block), error.what());
  }
  return check_block(block, target);
}

std::string BlockFile::contents_of(int64_t block) const {
  constexpr size_t kNamed = 20;
  const int64_t begin = block * kBlockBytes, end = block_end(block);
  SafetensorsHeader header;
  try {
    if (path_.extension() != ".safetensors") return "";
    header = read_header(
        bytes_, [&](int64_t at, std::span<std::byte> target) { base::read_at(file_, target, at, path_); },
        path_.string());
  } catch (const Error&) {
    return begin == 0 ? " (it holds the header)" : "";
  }
  std::vector<std::pair<int64_t, std::string>> inside;
  for (const auto& [name, entry] : header.tensors)
    if (entry.begin < end && entry.end > begin) inside.emplace_back(entry.begin, "tensor '" + name + "'");
  std::sort(inside.begin(), inside.end());
  std::vector<std::string> parts;
  if (begin < header.data_begin) parts.emplace_back("the header");
  for (size_t i = 0; i < std::min(inside.size(), kNamed); ++i) parts.push_back(inside[i].second);
  if (inside.size() > kNamed)
    parts.push_back(base::plural(static_cast<int64_t>(inside.size() - kNamed), "more tensor"));
  return parts.empty() ? "" : fmt::format(" (it holds {})", base::join(parts, ", "));
}

void BlockFile::read(int64_t offset, std::span<std::byte> target, const std::string& tensor) const {
  const int64_t end = offset + std::ssize(target);
  check_invariant(offset >= 0 && end <= bytes_, "a read lies inside its file");
  std::vector<std::byte> scratch;
  for (int64_t position = offset; position < end;) {
    const int64_t block = position / kBlockBytes;
    const int64_t block_begin = block * kBlockBytes;
    const int64_t stop = std::min(block_end(block), end);
    const std::span<std::byte> part = target.subspan(position - offset, stop - position);
    std::optional<std::string> problem;
    if (!expected_ || verified_[block]) {
      try {
        base::read_at(file_, part, position, path_);
      } catch (const base::FileError& error) {
        problem = error.what();
      }
    } else if (position == block_begin && stop == block_end(block)) {
      problem = read_block(block, part);
    } else {
      scratch.resize(kBlockBytes);
      problem = read_block(block, scratch);
      std::memcpy(part.data(), scratch.data() + (position - block_begin), part.size());
    }
    if (problem)
      throw_damaged(path_.parent_path(), *problem + (tensor.empty() ? contents_of(block) : ""), path_, tensor, advice_);
    position = stop;
  }
}

}  // namespace trireme::checkpoint
