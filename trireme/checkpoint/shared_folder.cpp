#include "trireme/checkpoint/shared_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/checkpoint/agree.h"
#include "trireme/checkpoint/disk.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "?";
}

std::string random_word() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

/// The file exists and holds `word`.
bool sees(const fs::path& file, const std::string& word) {
  try {
    return base::read_file(file) == word;
  } catch (const base::FileError&) {
    return false;
  }
}

}  // namespace

void check_shared_folder(const fs::path& folder, comm::Communicator& world) {
  const std::string mine = random_word();
  agree(world, [&] {
    if (world.rank() != 0) return;
    translate_file_errors(folder, 0, [&] {
      fs::create_directories(folder);
      write_new_file(folder / (".shared-" + mine), mine);
    });
  });
  const std::string word = broadcast_text(world, mine, 0), writer = broadcast_text(world, host_name(), 0);
  const fs::path file = folder / (".shared-" + word);
  const auto remove = [&] {
    std::error_code ignored;
    if (world.rank() == 0) fs::remove(file, ignored);
  };
  try {
    agree(world, [&] {
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(3);
      while (!sees(file, word)) {
        if (std::chrono::steady_clock::now() > deadline)
          throw CheckpointError(fmt::format("rank {} on host {} does not see the file that rank 0 on host {} made in "
                                            "{}: out_dir must be a folder of a file system that all hosts share",
                                            world.rank(), host_name(), writer, fs::absolute(folder).string()),
                                folder.string());
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
    });
  } catch (...) {
    remove();
    throw;
  }
  remove();
}

}  // namespace trireme::checkpoint
