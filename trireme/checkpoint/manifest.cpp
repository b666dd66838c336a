#include "trireme/checkpoint/manifest.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <span>

#include "trireme/base/checksum.h"
#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"

namespace trireme::checkpoint {
namespace {

using nlohmann::json;

constexpr std::string_view kFormat = "trireme-checkpoint";
constexpr int kManifestVersion = 1;
constexpr std::string_view kChecksumKey = "\"checksum\": \"";
constexpr size_t kHexDigits = 16;

/// Position of the manifest's own checksum: its last member.
size_t checksum_position(const std::string& text) {
  const size_t key = text.rfind(kChecksumKey);
  if (key == std::string::npos || key + kChecksumKey.size() + kHexDigits > text.size()) return std::string::npos;
  return key + kChecksumKey.size();
}

/// The checksum is of the text with zeros in its place.
uint64_t own_checksum(std::string text, size_t position) {
  text.replace(position, kHexDigits, kHexDigits, '0');
  return base::hash_text(text);
}

uint64_t parse_hex(const std::string& digits) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (digits.size() != kHexDigits || error != std::errc() || end != digits.data() + digits.size())
    throw std::runtime_error(fmt::format("'{}' is not a checksum", digits));
  return value;
}

Manifest parse_members(const json& root) {
  if (root.at("format").get<std::string>() != kFormat) throw std::runtime_error("its format is not trireme-checkpoint");
  if (base::whole_number(root.at("version")) != kManifestVersion)
    throw std::runtime_error(fmt::format("it has version {}, this program reads {}",
                                         base::whole_number(root.at("version")), kManifestVersion));
  if (base::whole_number(root.at("block_bytes")) != kBlockBytes)
    throw std::runtime_error("its blocks are not of 1 MiB");
  Manifest manifest{.step = base::whole_number(root.at("step")),
                    .ruined = root.value("ruined", ""),
                    .left_behind = root.value("left_behind", "")};
  for (const auto& [name, value] : root.at("files").items()) {
    if (!is_plain_name(name)) throw std::runtime_error(fmt::format("'{}' is not a file name", name));
    ManifestFile file{.bytes = base::whole_number(value.at("bytes"))};
    for (const json& digits : value.at("blocks")) file.blocks.push_back(parse_hex(digits.get<std::string>()));
    if (file.bytes < 0 || std::ssize(file.blocks) != num_blocks(file.bytes))
      throw std::runtime_error(fmt::format("file {} of {} has {} block checksums", name,
                                           base::plural(file.bytes, "byte"), file.blocks.size()));
    manifest.files[name] = std::move(file);
  }
  return manifest;
}

}  // namespace

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.front() != '.' && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

ManifestFile describe(std::string_view bytes) {
  ManifestFile file{.bytes = std::ssize(bytes)};
  for (size_t begin = 0; begin < bytes.size(); begin += kBlockBytes)
    file.blocks.push_back(base::hash_text(bytes.substr(begin, kBlockBytes)));
  return file;
}

std::string manifest_to_json(const Manifest& manifest) {
  std::string files;
  for (const auto& [name, file] : manifest.files) {
    std::string blocks;
    for (const uint64_t block : file.blocks) blocks += fmt::format("{}\"{:016x}\"", blocks.empty() ? "" : ", ", block);
    files += fmt::format("{}\n    {}: {{\"bytes\": {}, \"blocks\": [{}]}}", files.empty() ? "" : ",", json(name).dump(),
                         file.bytes, blocks);
  }
  const auto mark = [](const char* key, const std::string& why) {
    return why.empty() ? "" : fmt::format("  \"{}\": {},\n", key, json(why).dump());
  };
  const std::string marks = mark("ruined", manifest.ruined) + mark("left_behind", manifest.left_behind);
  std::string text = fmt::format(
      "{{\n  \"format\": \"{}\",\n  \"version\": {},\n  \"step\": {},\n{}  \"block_bytes\": {},\n  \"files\": {{{}\n  "
      "}},\n  {}{:016x}\"\n}}\n",
      kFormat, kManifestVersion, manifest.step, marks, kBlockBytes, files, kChecksumKey, 0);
  return with_own_checksum(std::move(text));
}

std::string with_own_checksum(std::string text) {
  const size_t position = checksum_position(text);
  if (position == std::string::npos) return text;
  return text.replace(position, kHexDigits, base::checksum_text(own_checksum(text, position)));
}

Manifest parse_manifest(const std::string& text, const std::string& path) {
  try {
    const size_t position = checksum_position(text);
    if (position == std::string::npos) throw std::runtime_error("its own checksum is missing");
    if (parse_hex(text.substr(position, kHexDigits)) != own_checksum(text, position))
      throw std::runtime_error("it does not match its own checksum");
    return parse_members(base::parse_json(text));
  } catch (const std::exception& error) {
    throw CheckpointError(fmt::format("{} is damaged: {}", path, error.what()), path);
  }
}

}  // namespace trireme::checkpoint
