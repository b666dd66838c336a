#include "trireme/base/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "trireme/base/mapped_ranges.h"
#include "trireme/base/process.h"
#include "trireme/base/text.h"

namespace trireme::base {

int exit_code_of(int code) {
  constexpr std::array kLater = {ENOSPC, EDQUOT, EFBIG, EIO, ESTALE};
  return std::ranges::count(kLater, code) > 0 ? kStorageFailed : kRefused;
}

int exit_code_of(const std::exception& error) {
  if (const auto* place = dynamic_cast<const std::filesystem::filesystem_error*>(&error))
    return exit_code_of(place->code().value());
  if (const auto* file = dynamic_cast<const FileError*>(&error)) return exit_code_of(file->code);
  if (const auto* storage = dynamic_cast<const StorageError*>(&error)) return exit_code_of(storage->code);
  const bool refused = dynamic_cast<const UsageError*>(&error) || dynamic_cast<const CheckpointError*>(&error);
  return refused ? kRefused : 1;
}

std::string file_size_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "the file system allows";
  return fmt::format("the limit on file sizes, {} (ulimit -f)", human_bytes(static_cast<int64_t>(limit.rlim_cur)));
}

void throw_file_error(std::string_view action, const std::filesystem::path& path, int code) {
  std::string reason = std::generic_category().message(code);
  if (code == ENOSPC) reason = fmt::format("the disk is full ({})", reason);
  if (code == EFBIG) reason = fmt::format("the file would be larger than {} ({})", file_size_limit(), reason);
  if (code == EMFILE || code == ENFILE) reason = why_no_descriptor(code);
  if (code == EPIPE) reason = fmt::format("what read it has gone ({})", reason);
  if (code == ELOOP) reason = "it is a symbolic link, or goes through a circle of them";
  throw FileError(fmt::format("cannot {} {}: {}", action, path.string(), reason), path, code);
}

void throw_file_error(const std::filesystem::filesystem_error& error) {
  std::error_code ignored;
  const bool is_second = !error.path2().empty() && std::filesystem::exists(error.path1(), ignored);
  const std::filesystem::path& wrong = is_second ? error.path2() : error.path1();
  throw_file_error("use", wrong.empty() ? "the current folder" : wrong, error.code().value());
}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = other.release();
  }
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

int FileDescriptor::release() { return std::exchange(descriptor_, -1); }

namespace {

FileDescriptor open_any(const std::filesystem::path& path, int flags, int mode) {
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  if (descriptor < 0) throw_file_error((flags & O_CREAT) ? "create" : "open", path, errno);
  return FileDescriptor(descriptor);
}

/// "a named pipe"
const char* kind_of_file(mode_t mode) {
  return S_ISDIR(mode) ? "a folder" : S_ISFIFO(mode) ? "a named pipe" : S_ISSOCK(mode) ? "a socket" : "a device";
}

[[noreturn]] void refuse_size(const std::filesystem::path& path, int64_t most_bytes) {
  throw FileError(fmt::format("cannot read {}: it holds more than {} MiB, which is too large for a file of this kind",
                              path.string(), most_bytes >> 20),
                  path, EINVAL);
}

/// Reads to the end, because the sizes of pipes and of files in /proc are wrong.
std::string read_to_end(const FileDescriptor& file, const std::filesystem::path& path, int64_t most_bytes) {
  std::string contents;
  for (size_t chunk = 64 * 1024;;) {
    const size_t old_size = contents.size();
    contents.resize(old_size + chunk);
    const ssize_t got = ::read(file.get(), contents.data() + old_size, chunk);
    contents.resize(old_size + static_cast<size_t>(got > 0 ? got : 0));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_file_error("read", path, errno);
    if (got == 0) return contents;
    if (static_cast<int64_t>(contents.size()) > most_bytes) refuse_size(path, most_bytes);
    chunk = std::min<size_t>(chunk * 2, size_t{16} << 20);
  }
}

}  // namespace

FileDescriptor open_file(const std::filesystem::path& path, int flags, int mode) {
  const bool reads = (flags & O_ACCMODE) == O_RDONLY && (flags & (O_DIRECTORY | O_PATH)) == 0;
  FileDescriptor file = open_any(path, reads ? flags | O_NONBLOCK : flags, mode);  // opening a pipe would wait
  if (!reads) return file;
  struct stat info{};
  if (::fstat(file.get(), &info) != 0) throw_file_error("read the size of", path, errno);
  if (!S_ISREG(info.st_mode))
    throw FileError(fmt::format("cannot read {}: it is {}, not a file", path.string(), kind_of_file(info.st_mode)),
                    path, S_ISDIR(info.st_mode) ? EISDIR : EINVAL);
  return file;
}

void make_real_folder(const std::filesystem::path& folder) {
  struct stat info{};
  if (::mkdir(folder.c_str(), 0777) == 0) return;
  const int code = errno;
  if (::lstat(folder.c_str(), &info) != 0) throw_file_error("make the folder", folder, code);
  if (S_ISLNK(info.st_mode)) throw_file_error("write into", folder, ELOOP);
  if (!S_ISDIR(info.st_mode)) throw_file_error("write into", folder, ENOTDIR);
}

unsigned readable_as(std::span<const std::filesystem::path> sources) {
  unsigned mode = 0644;
  std::set<std::pair<std::filesystem::path, unsigned>> seen;  // a folder is read, and entered
  for (const std::filesystem::path& source : sources) {
    std::error_code ignored;
    unsigned wanted = S_IRUSR | S_IRGRP | S_IROTH;
    for (auto path = std::filesystem::canonical(source, ignored); !path.empty(); path = path.parent_path()) {
      struct stat info{};
      if (!seen.insert({path, wanted}).second || ::stat(path.c_str(), &info) != 0) break;
      // Read the file, enter its folders. A group bit is for the group of the new file, which is this process'.
      if ((info.st_mode & wanted & S_IRWXO) == 0) mode &= ~0004U;
      if ((info.st_mode & wanted & S_IRWXG) == 0 || (info.st_gid != ::getegid() && (mode & 0004U) == 0)) mode &= ~0040U;
      wanted = S_IXUSR | S_IXGRP | S_IXOTH;
      if (!path.has_relative_path()) break;
    }
  }
  return mode;
}

void make_files_as_private_as(std::span<const std::filesystem::path> sources) {
  std::vector<std::filesystem::path> files;
  for (const std::filesystem::path& source : sources) {
    files.push_back(source);
    std::error_code error;
    for (std::filesystem::directory_iterator entry(source, error), end; !error && entry != end; entry.increment(error))
      if (entry->is_regular_file(error)) files.push_back(entry->path());
  }
  const unsigned readable = readable_as(files);
  const unsigned mask = ((readable & 0040U) == 0 ? 0070U : 0U) | ((readable & 0004U) == 0 ? 0007U : 0U);
  ::umask(::umask(0077) | mask);
}

void rename_to_new(const std::filesystem::path& from, const std::filesystem::path& to) {
  int code = ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0 ? 0 : errno;
  if (code == EINVAL || code == ENOSYS) {  // this file system cannot look and rename at once
    std::error_code ignored;
    const auto there = std::filesystem::symlink_status(to, ignored);
    code = std::filesystem::exists(there) ? EEXIST : ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
  }
  if (code == EEXIST)
    throw FileError(
        fmt::format("{} exists already: another process has made it meanwhile; name another place", to.string()), to,
        code);
  if (code != 0) throw_file_error(fmt::format("rename {} to", from.string()), to, code);
}

int reserve_bytes(int file, int64_t bytes) {
  int code = 0;
  do code = bytes > 0 ? ::posix_fallocate(file, 0, bytes) : 0;
  while (code == EINTR);
  return code;
}

void write_at(const FileDescriptor& file, std::span<const std::byte> bytes, int64_t offset,
              const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file.get(), bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_file_error("write", path, errno);
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += written;
  }
}

void read_at(const FileDescriptor& file, std::span<std::byte> bytes, int64_t offset,
             const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(file.get(), bytes.data(), bytes.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_file_error("read", path, errno);
    if (got == 0)
      throw FileError(
          fmt::format("cannot read {}: it ends at byte {}, {} bytes too early", path.string(), offset, bytes.size()),
          path, 0);
    bytes = bytes.subspan(static_cast<size_t>(got));
    offset += got;
  }
}

bool is_file(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

std::string read_file(const std::filesystem::path& path, int64_t most_bytes) {
  return read_to_end(open_file(path, O_RDONLY), path, most_bytes);
}

std::string read_side_file(const std::filesystem::path& path) { return read_file(path, kLargestSideFile); }

std::string read_file_or_pipe(const std::filesystem::path& path, int64_t most_bytes) {
  return read_to_end(open_any(path, O_RDONLY, 0), path, most_bytes);
}

void write_file_atomic(const std::filesystem::path& path, std::string_view contents) {
  std::filesystem::path temporary = path;
  temporary += fmt::format(".tmp{}", ::getpid());
  try {
    const FileDescriptor file = open_file(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW);
    write_at(file, std::as_bytes(std::span(contents)), 0, path);
    if (::fsync(file.get()) != 0) throw_file_error("write", path, errno);
    if (::rename(temporary.c_str(), path.c_str()) != 0) throw_file_error("replace", path, errno);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  fsync_directory(parent_of(path));
}

std::filesystem::path parent_of(const std::filesystem::path& path) {
  const std::filesystem::path named = path.has_filename() ? path : path.parent_path();  // "out/" is out
  return named.has_parent_path() ? named.parent_path() : std::filesystem::path(".");
}

void fsync_directory(const std::filesystem::path& folder) {
  const FileDescriptor file = open_file(folder, O_RDONLY | O_DIRECTORY);
  if (::fsync(file.get()) != 0) throw_file_error("fsync", folder, errno);
}

int64_t free_disk_bytes(const std::filesystem::path& path) {
  std::filesystem::path existing = std::filesystem::absolute(path);
  std::error_code ignored;
  while (!std::filesystem::exists(existing, ignored) && existing.has_relative_path()) existing = existing.parent_path();
  struct statvfs info{};
  if (::statvfs(existing.c_str(), &info) != 0) throw_file_error("read the free space at", existing, errno);
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  const FileDescriptor file = open_file(path, O_RDONLY);
  struct stat info{};
  if (::fstat(file.get(), &info) != 0) throw_file_error("read the size of", path, errno);
  if (info.st_size == 0) return;
  void* address = ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED) throw_file_error("map", path, errno);
  data_ = {static_cast<const std::byte*>(address), Unmap{static_cast<size_t>(info.st_size)}};
  remember_mapping(address, static_cast<size_t>(info.st_size), path);
}

void MappedFile::Unmap::operator()(const std::byte* data) const {
  forget_mapping(data);
  ::munmap(const_cast<std::byte*>(data), size);
}

std::optional<std::filesystem::path> find_program_file(const std::string& name) {
  const auto is_program = [](const std::filesystem::path& path) {
    return is_file(path) && access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos)
    return is_program(name) ? std::optional<std::filesystem::path>(name) : std::nullopt;
  const char* folders = std::getenv("PATH");
  std::istringstream all(folders == nullptr ? "/usr/bin" : folders);
  for (std::string folder; std::getline(all, folder, ':');)
    if (is_program(std::filesystem::path(folder) / name)) return std::filesystem::path(folder) / name;
  return std::nullopt;
}

}  // namespace trireme::base
