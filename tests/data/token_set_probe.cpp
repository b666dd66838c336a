// Prints a tokenized set so that scripts can compare: token_set_probe PREFIX writes i64 documents, i64 tokens, i64
// start[documents + 1], i64 id[tokens].
#include <cstdint>
#include <iostream>
#include <span>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/data/token_set.h"

namespace {

void write(std::span<const int64_t> values) {
  std::cout.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size_bytes()));
}

}  // namespace

int main(int argc, char** argv) try {
  const trireme::data::TokenSet set = trireme::data::TokenSet::open(argc > 1 ? argv[1] : "");
  std::vector<int64_t> values = {set.num_documents(), set.num_tokens()};
  for (int64_t d = 0; d <= set.num_documents(); ++d) values.push_back(set.document_start(d));
  write(values);
  values.resize(static_cast<size_t>(set.num_tokens()));
  set.copy(0, values);
  write(values);
  return 0;
} catch (const trireme::Error& error) {
  std::cerr << error.what() << "\n";
  return 2;
}
