#include "trireme/checkpoint/verify.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>

#include "trireme/base/crew.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/load.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

/// A file to be read; the blocks of all files are counted through.
struct Part {
  std::unique_ptr<BlockFile> file;
  int64_t first_block = 0;
};

class Readers {
 public:
  Readers(const std::vector<Part>& parts, int64_t blocks) : parts_(parts), blocks_(blocks), problems_(parts.size()) {}

  void run(int64_t total_bytes, const VerifyOptions& options) {
    base::Crew workers(static_cast<size_t>(options.threads), [this](size_t) { work(); });
    while (options.progress && next_ < blocks_ && !workers.has_failed()) {
      options.progress(std::min<int64_t>(done_bytes_, total_bytes), total_bytes);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    workers.join();
    if (options.progress) options.progress(total_bytes, total_bytes);
  }

  std::vector<std::string> problems(size_t part) {
    std::sort(problems_[part].begin(), problems_[part].end());
    std::vector<std::string> texts;
    for (auto& [block, text] : problems_[part]) texts.push_back(std::move(text));
    return texts;
  }

 private:
  void work() {
    std::vector<std::byte> buffer(kBlockBytes);
    for (int64_t block; (block = next_++) < blocks_;) {
      const auto after = std::upper_bound(parts_.begin(), parts_.end(), block,
                                          [](int64_t b, const Part& part) { return b < part.first_block; });
      const size_t part = static_cast<size_t>(after - parts_.begin()) - 1;
      const int64_t own = block - parts_[part].first_block;
      if (const auto problem = parts_[part].file->read_block(own, buffer)) {
        const std::lock_guard lock(mutex_);
        problems_[part].emplace_back(own, *problem + parts_[part].file->contents_of(own));
      }
      done_bytes_ += kBlockBytes;
    }
  }

  const std::vector<Part>& parts_;
  const int64_t blocks_;
  std::atomic<int64_t> next_{0}, done_bytes_{0};
  std::mutex mutex_;
  std::vector<std::vector<std::pair<int64_t, std::string>>> problems_;  // by part: block and sentence
};

}  // namespace

VerifyReport verify(const fs::path& path, const VerifyOptions& options) {
  VerifyReport report;
  Manifest manifest;
  std::string refused;
  try {
    const Checkpoint checkpoint = open_checkpoint(path, Advice::none);
    report.has_manifest = checkpoint.has_manifest;
    manifest = checkpoint.manifest;
    if (!checkpoint.has_manifest) report.files = std::ssize(checkpoint.files);
  } catch (const Error& error) {
    refused = error.what();
    const bool unreadable = dynamic_cast<const UnreadableError*>(&error) != nullptr;
    try {  // with a sound manifest: name every bad block
      manifest = parse_manifest(base::read_side_file(path / kManifestName), "");
    } catch (const Error&) {
      (unreadable ? report.unreadable : report.problems).push_back(refused);
      return report;
    }
    report.has_manifest = true;
  }
  report.ruined = manifest.ruined;
  std::vector<Part> parts;
  for (const auto& [name, expected] : manifest.files) {
    ++report.files;
    try {
      auto file = std::make_unique<BlockFile>(path / name, expected, Advice::none);
      report.bytes += expected.bytes;
      parts.push_back({std::move(file), report.blocks});
      report.blocks += num_blocks(expected.bytes);
    } catch (const UnreadableError& error) {
      report.unreadable.emplace_back(error.what());
    } catch (const CheckpointError& error) {
      report.problems.emplace_back(error.what());
    }
  }
  std::erase_if(parts, [](const Part& part) { return part.file->bytes() == 0; });
  Readers readers(parts, report.blocks);
  readers.run(report.bytes, options);
  for (size_t part = 0; part < parts.size(); ++part)
    for (std::string& problem : readers.problems(part)) report.problems.push_back(std::move(problem));
  if (report.problems.empty() && report.unreadable.empty() && !refused.empty()) report.problems.push_back(refused);
  return report;
}

}  // namespace trireme::checkpoint
