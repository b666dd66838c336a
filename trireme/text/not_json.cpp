#include "trireme/text/not_json.h"

#include <fmt/format.h>

#include "trireme/text/utf8.h"

namespace trireme::text {

std::string why_not_json(std::string_view text) {
  const size_t sound = well_formed_prefix(text).size();
  if (sound == text.size()) return "not JSON";
  return fmt::format("not UTF-8 (byte {}); convert the file, for instance with iconv", sound + 1);
}

}  // namespace trireme::text
