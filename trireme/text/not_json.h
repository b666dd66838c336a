// What is wrong with a line that is not JSON, in the same words for every file that people write.
#pragma once

#include <string>
#include <string_view>

namespace trireme::text {

/// "not UTF-8 (byte 12); convert the file, for instance with iconv" or "not JSON", for a `text` that JSON's parser
/// refuses. Bytes count from 1, as in its own messages.
std::string why_not_json(std::string_view text);

}  // namespace trireme::text
