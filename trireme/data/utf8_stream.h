// Lets bytes through only as whole UTF-8 characters, so that text generated token by token can be printed
// as it comes: the first bytes of a character wait for its last. Bytes that belong to no character are
// shown as U+FFFD, one for each maximal ill-formed piece (Unicode 15, section 3.9, table 3-8).
#pragma once

#include <string>
#include <string_view>

namespace trireme::data {

class Utf8Stream {
 public:
  /// Adds `bytes`; returns all text that is now complete.
  std::string push(std::string_view bytes);

  /// The end: what still waits is an unfinished character and comes out as U+FFFD.
  std::string finish();

 private:
  std::string waiting_;  // a proper prefix of one character, at most 3 bytes
};

}  // namespace trireme::data
