#include "trireme/data/parquet.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/shared_library.h"

namespace trireme::data {
namespace {

constexpr const char* kLibrary = "libtrireme_parquet.so";

OpenParquet* load() {
  // Local: symbols of Arrow's libraries must not collide with LibTorch's.
  void* library = dlopen(base::library_path(kLibrary).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw UsageError(
        fmt::format("Parquet files need {}, which cannot be opened ({}): run scripts/setup --parquet and build again, "
                    "or write the texts as JSONL",
                    kLibrary, dlerror()));
  void* open = dlsym(library, kOpenParquet);
  if (open == nullptr)
    throw UsageError(fmt::format("{} is of another version of Trireme: build and install both together", kLibrary));
  return reinterpret_cast<OpenParquet*>(open);
}

}  // namespace

void check_parquet_frame(std::span<const std::byte> tail, int64_t file_bytes, const std::string& name) {
  const auto refuse = [&](const std::string& rule) {
    throw UsageError(fmt::format("{} is no Parquet file: {}", name, rule));
  };
  if (file_bytes < 12 || tail.size() < 8) refuse(fmt::format("{} bytes are fewer than the smallest has", file_bytes));
  const std::string_view magic(reinterpret_cast<const char*>(tail.data() + tail.size() - 4), 4);
  if (magic == "PARE") refuse("it is encrypted, which is not supported");
  if (magic != "PAR1") refuse("it does not end with PAR1; is it whole?");
  uint32_t footer = 0;
  std::memcpy(&footer, tail.data() + tail.size() - 8, sizeof footer);
  if (int64_t{footer} > file_bytes - 12)
    refuse(fmt::format("its footer of {} bytes does not fit into {}", footer, file_bytes));
}

std::unique_ptr<ParquetColumn> open_parquet(const std::filesystem::path& path, const std::string& column) {
  {
    const base::FileDescriptor file = base::open_file(path, O_RDONLY);
    const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path));
    std::array<std::byte, 8> tail{};
    if (bytes >= 8) base::read_at(file, tail, bytes - 8, path);
    check_parquet_frame(tail, bytes, path.string());
  }
  static OpenParquet* const open = load();
  return open(path, column);
}

}  // namespace trireme::data
