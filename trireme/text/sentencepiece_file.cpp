#include "trireme/text/sentencepiece_file.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "trireme/base/error.h"

namespace trireme::text {
namespace {

// One message of protobuf's wire format.
class Message {
 public:
  Message(std::string_view bytes, size_t origin) : bytes_(bytes), origin_(origin) {}

  /// Steps to the next field; false at the end.
  bool next() {
    if (at_ == bytes_.size()) return false;
    const uint64_t key = varint();
    field_ = static_cast<uint32_t>(key >> 3);
    kind_ = static_cast<uint32_t>(key & 7);
    begin_ = at_;
    switch (kind_) {
      case 0:
        value_ = varint();
        return true;
      case 1:
        take(8);
        return true;
      case 2: {
        const uint64_t length = varint();
        begin_ = at_;
        take(length);
        return true;
      }
      case 5:
        take(4);
        std::memcpy(&fixed_, bytes_.data() + begin_, 4);
        return true;
      default:
        fail("a field of unknown kind");
    }
  }

  uint32_t field() const { return field_; }
  std::string_view bytes() const { return expect(2), bytes_.substr(begin_, at_ - begin_); }
  Message message() const { return {bytes(), origin_ + begin_}; }
  int64_t integer() const { return expect(0), static_cast<int64_t>(value_); }
  bool flag() const { return integer() != 0; }
  float number() const { return expect(5), std::bit_cast<float>(fixed_); }

  [[noreturn]] void fail(std::string_view what) const {
    throw UsageError(fmt::format("{} at byte {}", what, origin_ + at_));
  }

 private:
  void expect(uint32_t kind) const {
    if (kind_ != kind) fail(fmt::format("field {} of another kind than expected", field_));
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == bytes_.size()) fail("the end inside a number");
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    fail("a number of more than 64 bits");
  }
  void take(uint64_t count) {
    if (count > bytes_.size() - at_) fail("the end inside a field");
    at_ += count;
  }

  std::string_view bytes_;
  size_t origin_, at_ = 0, begin_ = 0;
  uint32_t field_ = 0, kind_ = 0, fixed_ = 0;
  uint64_t value_ = 0;
};

SentencePieceFile::Piece read_piece(Message message) {
  SentencePieceFile::Piece piece;
  while (message.next()) {
    if (message.field() == 1) piece.text = message.bytes();
    if (message.field() == 2) piece.score = message.number();
    if (message.field() != 3) continue;
    if (message.integer() < 1 || message.integer() > 6) message.fail("a piece of unknown type");
    piece.type = static_cast<SentencePieceFile::Type>(message.integer());
  }
  return piece;
}

void read_trainer(Message message, SentencePieceFile& file) {
  while (message.next()) {
    if (message.field() == 24) file.treat_whitespace_as_suffix = message.flag();
    if (message.field() == 35) file.byte_fallback = message.flag();
    if (message.field() == 41) file.bos_id = static_cast<int32_t>(message.integer());
    if (message.field() == 42) file.eos_id = static_cast<int32_t>(message.integer());
    if (message.field() == 44) file.unknown_surface = message.bytes();
    if (message.field() != 3) continue;
    if (message.integer() < 1 || message.integer() > 4) message.fail("an unknown model type");
    file.model = static_cast<SentencePieceFile::Model>(message.integer());
  }
}

void read_normalizer(Message message, SentencePieceFile& file) {
  while (message.next()) {
    if (message.field() == 2) file.charsmap = message.bytes();
    if (message.field() == 3) file.add_dummy_prefix = message.flag();
    if (message.field() == 4) file.remove_extra_whitespaces = message.flag();
    if (message.field() == 5) file.escape_whitespaces = message.flag();
  }
}

}  // namespace

SentencePieceFile parse_sentencepiece(std::string_view bytes) {
  SentencePieceFile file;
  Message message(bytes, 0);
  while (message.next()) {
    if (message.field() == 1) file.pieces.push_back(read_piece(message.message()));
    if (message.field() == 2) read_trainer(message.message(), file);
    if (message.field() == 3) read_normalizer(message.message(), file);
  }
  if (file.pieces.empty()) message.fail("no piece up to the end");
  return file;
}

}  // namespace trireme::text
