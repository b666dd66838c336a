#include "targets.h"
#include "trireme/data/parquet.h"

namespace trireme::fuzz {

/// What is looked at before Arrow sees a file: what passes has a footer inside.
void fuzz_parquet_frame(std::string_view bytes) {
  const std::string_view tail = bytes.size() < 8 ? bytes : bytes.substr(bytes.size() - 8);
  data::check_parquet_frame(std::as_bytes(std::span(tail)), static_cast<int64_t>(bytes.size()), "x.parquet");
  require(bytes.size() >= 12 && bytes.ends_with("PAR1"), "a Parquet file ends with its mark");
}

}  // namespace trireme::fuzz
