#include "trireme/data/megatron_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::data {
namespace {

constexpr char kMagic[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};

// Codes 6 and 7 are floating-point numbers, which are no tokens.
constexpr std::array<std::pair<uint8_t, TokenType>, 6> kCodes = {{{1, TokenType::uint8},
                                                                  {2, TokenType::int8},
                                                                  {3, TokenType::int16},
                                                                  {4, TokenType::int32},
                                                                  {5, TokenType::int64},
                                                                  {8, TokenType::uint16}}};

template <typename T>
T read(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

[[noreturn]] void refuse_index(const std::string& name, std::string_view rule) {
  throw UsageError(fmt::format("{} is no index of a Megatron data set that can be read: {}", name, rule));
}

MegatronHeader read_header(std::span<const std::byte> bytes, const std::string& name) {
  if (bytes.size() < kMegatronHeaderBytes || std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0)
    refuse_index(name, "it does not begin with MMIDIDX");
  if (const auto version = read<uint64_t>(bytes.data() + 9); version != 1)
    refuse_index(name, fmt::format("its version is {} and 1 is known", version));
  const auto code = read<uint8_t>(bytes.data() + 17);
  const auto* known = std::find_if(kCodes.begin(), kCodes.end(), [&](const auto& c) { return c.first == code; });
  if (known == kCodes.end())
    refuse_index(
        name,
        fmt::format("its dtype code is {}; tokens are 1 uint8, 2 int8, 3 int16, 4 int32, 5 int64, 8 uint16", code));
  const auto sequences = read<uint64_t>(bytes.data() + 18), entries = read<uint64_t>(bytes.data() + 26);
  const uint64_t rest = bytes.size() - kMegatronHeaderBytes;
  // Divided first, so that no product overflows.
  if (sequences > rest / 12 || entries > rest / 8 || sequences * 12 + entries * 8 != rest)
    refuse_index(name,
                 fmt::format("{} sequences and {} document entries make {} bytes with the header, and it has {}{}",
                             sequences, entries,
                             sequences > rest || entries > rest
                                 ? std::string("more")
                                 : std::to_string(kMegatronHeaderBytes + sequences * 12 + entries * 8),
                             bytes.size(),
                             sequences <= rest && sequences * 13 + entries * 8 == rest
                                 ? " (with modes of a multimodal data set, which are not supported)"
                                 : ""));
  if (entries == 0) refuse_index(name, "its document index is empty; it begins with 0");
  return {known->second, static_cast<int64_t>(sequences), static_cast<int64_t>(entries)};
}

}  // namespace

std::string megatron_header(const MegatronHeader& header) {
  std::string bytes(kMegatronHeaderBytes, '\0');
  const auto* code = std::find_if(kCodes.begin(), kCodes.end(), [&](const auto& c) { return c.second == header.type; });
  const uint64_t version = 1;
  std::memcpy(bytes.data(), kMagic, sizeof kMagic);
  std::memcpy(bytes.data() + 9, &version, 8);
  std::memcpy(bytes.data() + 17, &code->first, 1);
  std::memcpy(bytes.data() + 18, &header.num_sequences, 8);
  std::memcpy(bytes.data() + 26, &header.num_document_entries, 8);
  return bytes;
}

MegatronIndex::MegatronIndex(std::span<const std::byte> bytes, uint64_t bin_bytes, const std::string& name)
    : header_(read_header(bytes, name)) {
  lengths_ = bytes.data() + kMegatronHeaderBytes;
  pointers_ = lengths_ + 4 * header_.num_sequences;
  documents_ = pointers_ + 8 * header_.num_sequences;
  const auto width = static_cast<uint64_t>(bytes_per_token(header_.type));
  if (bin_bytes % width != 0)
    refuse_index(name, fmt::format("its .bin has {} bytes, which are not whole tokens of {}", bin_bytes, width));
  num_tokens_ = static_cast<int64_t>(bin_bytes / width);
  check(name);
}

void MegatronIndex::check(const std::string& name) const {
  int64_t expected = 0;
  const int64_t width = bytes_per_token(header_.type), end = num_tokens_ * width;
  for (int64_t s = 0; s < header_.num_sequences; ++s) {
    if (pointer(s) != expected)
      refuse_index(name, fmt::format("sequence {} begins at byte {} of .bin and the one before ends at {}; only "
                                     "sequences without gaps, in order, are supported",
                                     s, pointer(s), expected));
    if (length(s) < 0 || length(s) > (end - expected) / width)
      refuse_index(name,
                   fmt::format("sequence {} of {} tokens does not fit into a .bin of {} bytes; is that file whole?", s,
                               length(s), end));
    expected += length(s) * width;
  }
  if (expected != end)
    refuse_index(
        name, fmt::format("its sequences take {} bytes and .bin has {}; they do not belong together", expected, end));
  for (int64_t d = 0; d <= num_documents(); ++d)
    if (document(d) < (d == 0 ? 0 : document(d - 1)) || document(d) > header_.num_sequences)
      refuse_index(name, fmt::format("entry {} of its document index is {}, which is out of order", d, document(d)));
  if (document(0) != 0 || document(num_documents()) != header_.num_sequences)
    refuse_index(
        name, fmt::format("its document index goes from {} to {}; it has to go from 0 to the number of sequences, {}",
                          document(0), document(num_documents()), header_.num_sequences));
}

int64_t MegatronIndex::length(int64_t sequence) const { return read<int32_t>(lengths_ + 4 * sequence); }
int64_t MegatronIndex::pointer(int64_t sequence) const { return read<int64_t>(pointers_ + 8 * sequence); }
int64_t MegatronIndex::document(int64_t d) const { return read<int64_t>(documents_ + 8 * d); }

int64_t MegatronIndex::document_start(int64_t d) const {
  check_invariant(d >= 0 && d <= num_documents(), "a document is one of its set");
  const int64_t sequence = document(d);
  return sequence == header_.num_sequences ? num_tokens_ : pointer(sequence) / bytes_per_token(header_.type);
}

}  // namespace trireme::data
