// Quantizes matrices for blocks_judge.py: reads lines "FORMAT DTYPE COLUMNS ROWS FILE" from the standard input, FILE
// with float32 values, and writes FILE.codes, FILE.scales, FILE.nested, FILE.json and FILE.values (dequantized).
#include <cstdio>
#include <fstream>
#include <iostream>
#include <span>
#include <sstream>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/checkpoint/bitsandbytes.h"

namespace {

using namespace trireme;

void write(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
}

base::BlockFormat format_named(const std::string& name) {
  for (const base::BlockFormatTraits& row : base::kBlockFormats)
    if (row.name == name) return row.format;
  throw Error("no such format: " + name);
}

void answer(const std::string& format, const std::string& dtype, int64_t rows, int64_t columns,
            const std::string& file) {
  const int64_t n = rows * columns, piece = 64 * 37;
  std::vector<float> values(static_cast<size_t>(n));
  std::ifstream(file, std::ios::binary).read(reinterpret_cast<char*>(values.data()), n * 4);
  ops::Quantizer quantizer(format_named(format), n);
  for (int64_t begin = 0; begin < n; begin += piece)
    quantizer.add(begin, std::min(piece, n - begin), values.data() + begin);
  const ops::Quantized q = quantizer.finish();
  write(file + ".codes", std::as_bytes(std::span(q.codes)));
  write(file + ".scales",
        q.scales.empty() ? std::as_bytes(std::span(q.nested_codes)) : std::as_bytes(std::span(q.scales)));
  write(file + ".nested", std::as_bytes(std::span(q.nested_scales)));
  const std::string json = checkpoint::quant_state_json(q, {rows, columns}, *checkpoint::parse_torch_name(dtype));
  write(file + ".json", std::as_bytes(std::span(json)));
  ops::dequantize(q, 0, n, values.data());
  write(file + ".values", std::as_bytes(std::span(values)));
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string format, dtype, file;
    int64_t rows = 0, columns = 0;
    words >> format >> dtype >> rows >> columns >> file;
    answer(format, dtype, rows, columns, file);
  }
}
