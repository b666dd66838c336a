#include "trireme/train/ledger_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "trireme/base/checksum.h"
#include "trireme/data/ledger.h"

namespace trireme::train {
namespace fs = std::filesystem;

LedgerFile::LedgerFile(const fs::path& out_dir, int global_rank)
    : path_(out_dir / "ledger" / fmt::format("rank{}.jsonl", global_rank)) {
  std::error_code failure;
  fs::create_directories(out_dir, failure);
  if (failure) base::throw_file_error("create", out_dir, failure.value());
  base::make_real_folder(path_.parent_path());
  file_ = base::open_file(path_, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW);
}

void LedgerFile::write(int64_t step, const data::Batch& batch, const data::SampleStream& samples) {
  const uint64_t inputs = base::checksum(std::as_bytes(batch.inputs)),
                 targets = base::checksum(std::as_bytes(batch.targets));
  std::string rows;
  for (int64_t i = 0; i < batch.num_samples; ++i)
    rows += (i > 0 ? ", " : "") + data::ledger_json(samples, batch.first_sample + i);
  const std::string line =
      fmt::format("{{\"step\": {}, \"micro_batch\": {}, \"checksum\": \"{:016x}{:016x}\", \"samples\": [{}]}}\n", step,
                  batch.micro_batch_index, inputs, targets, rows);
  for (std::string_view rest = line; !rest.empty();) {
    const ssize_t written = ::write(file_.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) base::throw_file_error("write", path_, errno);
    rest.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace trireme::train
