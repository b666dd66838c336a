// The C++ side of torch_judge.py.
//   torch_judge_helper dump KIND PATH              prints name, dtype, shape and bytes (hex) of every tensor
//   torch_judge_helper copy KIND PATH KIND TARGET
//   torch_judge_helper convert SOURCE OUT FORMAT                    as trireme convert does
// KIND is pth or dcp.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>

#include "tests/checkpoint/memory_source.h"
#include "trireme/formats/convert.h"
#include "trireme/formats/dcp/dcp.h"
#include "trireme/formats/torch/file.h"

namespace checkpoint = trireme::checkpoint;
namespace formats = trireme::formats;

namespace {

std::unique_ptr<checkpoint::TensorSource> open_source(const std::string& kind, const std::string& path) {
  if (kind == "dcp") return std::make_unique<formats::DcpSource>(path);
  return std::make_unique<formats::TorchFileSource>(path);
}

std::unique_ptr<checkpoint::TensorSink> open_sink(const std::string& kind, const std::string& path,
                                                  const checkpoint::TensorSource& source) {
  if (kind == "dcp") return std::make_unique<formats::DcpSink>(path, source.tensors());
  return std::make_unique<formats::TorchFileSink>(path, source.tensors());
}

void dump(const checkpoint::TensorSource& source) {
  for (size_t i = 0; i < source.tensors().size(); ++i) {
    const checkpoint::TensorSpec& tensor = source.tensors()[i];
    std::string hex;
    for (const char byte : checkpoint::read_whole(source, i, 7))
      hex += fmt::format("{:02x}", static_cast<uint8_t>(byte));
    fmt::print("{}\t{}\t{}\t{}\n", tensor.name, checkpoint::dtype_name(tensor.dtype),
               checkpoint::shape_text(tensor.shape), hex);
  }
}

void copy(const checkpoint::TensorSource& source, checkpoint::TensorSink& sink) {
  for (size_t i = 0; i < source.tensors().size(); ++i) {
    const checkpoint::TensorSpec& tensor = source.tensors()[i];
    const int64_t rows = tensor.shape.empty() ? 1 : tensor.shape[0];
    const int64_t row = rows == 0 ? 0 : checkpoint::num_elements(tensor.shape) / rows;
    std::string bytes(static_cast<size_t>(row * checkpoint::size_of(tensor.dtype)), '\0');
    for (int64_t r = 0; r < rows; ++r) {
      source.read(i, r * row, (r + 1) * row, bytes.data(), tensor.dtype);
      sink.write(i, r * row, (r + 1) * row, bytes.data(), tensor.dtype);
    }
  }
  sink.finish();
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 4) return 2;
  const std::string command = argv[1];
  if (command == "convert" && argc == 5) {
    formats::convert_checkpoint({.source = argv[2], .out = argv[3], .to = argv[4]});
    return 0;
  }
  const auto source = open_source(argv[2], argv[3]);
  if (command == "dump") {
    dump(*source);
    return 0;
  }
  copy(*source, *open_sink(argv[4], argv[5], *source));
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
