#include "trireme/data/text_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <system_error>

#include "trireme/base/checksum.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/mix64.h"
#include "trireme/base/not_text.h"
#include "trireme/base/text.h"
#include "trireme/data/conversation.h"

namespace trireme::data {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void refuse(const fs::path& path, std::string_view rule) {
  throw UsageError(fmt::format("{}: {}", path.string(), rule));
}

bool is_json(std::string_view name) { return ending_of(name) == ".json"; }

// A list of objects, or one in each of several lines. A single object may be the settings of anything.
// What is wrong inside a list is told where it is read. A file that cannot be opened may hold anything.
bool holds_records(const fs::path& path) {
  const base::MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  try {
    RecordReader records(text, path.string());
    if (!records.is_list()) return records.next() && records.next();
    const size_t first = text.find_first_not_of(" \t\r\n", text.find('[') + 1);
    return first != std::string_view::npos && text[first] == '{';
  } catch (const UsageError&) {
    return false;
  }
}

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

void walk(const std::string& root, const std::string& below, const TakeFile& take, const TakeLink& link) {
  const std::string path = below.empty() ? root : root + "/" + below;
  const std::unique_ptr<DIR, CloseFolder> folder(::opendir(path.c_str()));
  if (!folder) refuse(path, fmt::format("the folder cannot be read ({})", std::generic_category().message(errno)));
  while (const dirent* entry = ::readdir(folder.get())) {
    if (entry->d_name[0] == '.') continue;
    const std::string name = below.empty() ? entry->d_name : below + "/" + entry->d_name;
    struct stat info{};
    if (::fstatat(::dirfd(folder.get()), entry->d_name, &info, 0) != 0)
      refuse(root + "/" + name, fmt::format("cannot be looked at ({})", std::generic_category().message(errno)));
    if (S_ISDIR(info.st_mode)) {
      struct stat own{};
      const bool is_link =
          ::fstatat(::dirfd(folder.get()), entry->d_name, &own, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(own.st_mode);
      if (!is_link) walk(root, name, take, link);
      if (is_link && link) link(name);
    } else if (S_ISREG(info.st_mode)) {
      take(name, static_cast<int64_t>(info.st_size));
    }
  }
}

}  // namespace

std::string ending_of(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || name.find('/', dot) != std::string_view::npos) return "";
  std::string end(name.substr(dot));
  for (char& c : end)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return end;
}

std::optional<TextKind> text_kind(std::string_view name) {
  const std::string end = ending_of(name);
  if (end == ".jsonl" || end == ".ndjson") return TextKind::jsonl;
  if (end == ".parquet") return TextKind::parquet;
  if (end == ".txt" || end == ".text" || end == ".md") return TextKind::plain;
  return std::nullopt;
}

void refuse_pipe(const fs::path& path) {
  refuse(path, "is neither a file nor a folder; only those can be read twice, as going on after a kill needs");
}

void refuse_packed(const std::string& folder, std::span<const std::string> names) {
  std::vector<std::string_view> packed;
  std::error_code ignored;
  for (const std::string& name : names)
    if (!fs::exists(fs::path(folder) / base::unpacked_name(name).value_or(name), ignored)) packed.push_back(name);
  if (packed.empty()) return;
  refuse(folder, fmt::format("the folder holds {}, which would be left out, such as {}: unpack what you need "
                             "(gunzip -k, unzstd, unxz -k, bunzip2 -k), and move the others away",
                             base::plural(std::ssize(packed), "compressed file"), *std::ranges::min_element(packed)));
}

void for_each_file(const std::string& folder, const TakeFile& take, const TakeLink& link) {
  walk(folder, "", take, link);
}

void TextFiles::add(uint32_t root, std::string_view name, int64_t bytes, TextKind kind) {
  files_.push_back({bytes, names_.size(), root, kind});
  names_.append(name);
  names_.push_back('\0');
  roots_[root].files += 1;
  roots_[root].bytes += bytes;
  total_bytes_ += bytes;
}

void TextFiles::add_folder(const std::string& root) {
  const auto index = static_cast<uint32_t>(roots_.size() - 1);
  const size_t first = files_.size();
  bool any = false;
  std::vector<std::string> packed;
  for_each_file(
      root,
      [&](const std::string& name, int64_t bytes) {
        auto kind = text_kind(name);
        if (is_json(name) && bytes > 0 && holds_records(fs::path(root) / name)) kind = TextKind::json;
        any = any || kind;
        if (kind && bytes > 0) add(index, name, bytes, *kind);
        const auto unpacked = base::unpacked_name(name);
        if (unpacked && text_kind(*unpacked))
          packed.push_back(name);
        else if (!kind && bytes > 0)
          left_out_.add(name);
      },
      [&](const std::string& name) { links_left_out_.add(name); });
  refuse_packed(root, packed);
  if (!any)
    refuse(root, fmt::format("the folder holds no text: no .txt, .text, .md, .jsonl, .ndjson or .parquet file, and no "
                             ".json of records{}{}",
                             left_out_.count + links_left_out_.count > 0 ? "; " : "", left_out_text()));
  if (files_.size() == first) refuse(root, "every file of text in the folder is empty");
  std::sort(files_.begin() + static_cast<int64_t>(first), files_.end(),
            [&](const File& a, const File& b) { return name(a) < name(b); });
}

TextFiles TextFiles::list(std::span<const std::string> sources) {
  TextFiles files;
  for (const std::string& source : sources) {
    struct stat info{};
    if (::stat(source.c_str(), &info) != 0)
      refuse(source,
             source.find("://") != std::string::npos ? fmt::format("there is no such file: {}", base::kFetchFirst)
             : errno == ENOENT                       ? "there is no such file or folder"
                               : fmt::format("cannot be looked at ({})", std::generic_category().message(errno)));
    files.roots_.push_back({source});
    if (S_ISDIR(info.st_mode)) {
      files.add_folder(source);
    } else if (!S_ISREG(info.st_mode)) {
      refuse_pipe(source);
    } else if (info.st_size == 0) {
      refuse(source, "the file is empty");
    } else {
      const auto index = static_cast<uint32_t>(files.roots_.size() - 1);
      const TextKind kind = is_json(source) ? TextKind::json : text_kind(source).value_or(TextKind::plain);
      if (kind != TextKind::parquet) base::require_text_file(source);
      files.add(index, "", info.st_size, kind);
    }
  }
  return files;
}

void TextFiles::LeftOut::add(const std::string& name) {
  if (count++ == 0 || name < first) first = name;
}

std::string TextFiles::left_out_text() const {
  std::vector<std::string> words;
  if (left_out_.count > 0)
    words.push_back(fmt::format("{} left out, such as {}", base::plural(left_out_.count, "file"), left_out_.first));
  if (links_left_out_.count > 0)
    words.push_back(fmt::format("{} left out, such as {}: name what {} to",
                                base::plural(links_left_out_.count, "linked folder"), links_left_out_.first,
                                links_left_out_.count == 1 ? "it leads" : "they lead"));
  return base::join(words, "; ");
}

fs::path TextFiles::path(int64_t file) const {
  const File& f = files_[static_cast<size_t>(file)];
  const std::string& root = roots_[f.root].path;
  return name(f).empty() ? fs::path(root) : fs::path(root) / name(f);
}

uint64_t TextFiles::fingerprint() const {
  uint64_t value = files_.size();
  for (int64_t i = 0; i < size(); ++i) {
    const File& file = files_[static_cast<size_t>(i)];
    const fs::path path = this->path(i);
    const std::string own = name(file).empty() ? path.filename().string() : std::string(name(file));
    struct stat info{};
    const bool is_there = ::stat(path.c_str(), &info) == 0;
    const auto changed = is_there ? static_cast<uint64_t>(info.st_mtim.tv_sec) * 1'000'000'000u +
                                        static_cast<uint64_t>(info.st_mtim.tv_nsec)
                                  : 0;
    value = base::mix_key(value, base::mix_key(base::hash_text(own), static_cast<uint64_t>(file.bytes)));
    value = base::mix_key(value, changed);
  }
  return value;
}

}  // namespace trireme::data
