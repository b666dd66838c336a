// The C++ side of torch_judge.py.
//   torch_judge_helper dump KIND PATH              prints name, dtype, shape and bytes (hex) of every tensor
//   torch_judge_helper copy KIND PATH KIND TARGET [WRAPPER [NAME=SOURCE]]
//   torch_judge_helper to_litgpt CONFIG.json WEIGHTS.pth FOLDER     writes model_config.yaml and lit_model.pth
//   torch_judge_helper from_litgpt FOLDER TARGET                    writes TARGET/config.json and pytorch_model.bin
// KIND is pth or dcp.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>

#include "memory_source.h"
#include "trireme/base/files.h"
#include "trireme/checkpoint/dcp.h"
#include "trireme/checkpoint/litgpt_config.h"
#include "trireme/checkpoint/litgpt_names.h"
#include "trireme/checkpoint/torch_file.h"

namespace checkpoint = trireme::checkpoint;

namespace {

std::unique_ptr<checkpoint::TensorSource> open_source(const std::string& kind, const std::string& path) {
  if (kind == "dcp") return std::make_unique<checkpoint::DcpSource>(path);
  return std::make_unique<checkpoint::TorchFileSource>(path);
}

std::unique_ptr<checkpoint::TensorSink> open_sink(const std::string& kind, const std::string& path,
                                                  const checkpoint::TensorSource& source,
                                                  const checkpoint::TorchFileOptions& options) {
  if (kind == "dcp") {
    return std::make_unique<checkpoint::DcpSink>(path, source.tensors(),
                                                 checkpoint::DcpOptions{.wrapper = options.wrapper});
  }
  return std::make_unique<checkpoint::TorchFileSink>(path, source.tensors(), options);
}

void dump(const checkpoint::TensorSource& source) {
  for (size_t i = 0; i < source.tensors().size(); ++i) {
    const checkpoint::SourceTensor& tensor = source.tensors()[i];
    std::string hex;
    for (const char byte : checkpoint::read_whole(source, i, 7))
      hex += fmt::format("{:02x}", static_cast<uint8_t>(byte));
    fmt::print("{}\t{}\t{}\t{}\n", tensor.name, checkpoint::dtype_name(tensor.dtype),
               checkpoint::shape_text(tensor.shape), hex);
  }
}

void copy(const checkpoint::TensorSource& source, checkpoint::TensorSink& sink) {
  for (size_t i = 0; i < source.tensors().size(); ++i) {
    const checkpoint::SourceTensor& tensor = source.tensors()[i];
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

void copy_mapped(const checkpoint::TensorSource& source, std::vector<checkpoint::MappedTensor> map,
                 const std::string& path) {
  const checkpoint::MappedSource mapped(source, std::move(map));
  checkpoint::TorchFileSink sink(path, mapped.tensors());
  copy(mapped, sink);
}

void to_litgpt(const std::string& json, const std::string& weights, const std::string& folder) {
  const auto config = trireme::model::parse_hugging_face_config(trireme::base::read_file(json), json);
  const checkpoint::TorchFileSource source(weights);
  trireme::base::write_file_atomic(folder + "/model_config.yaml", checkpoint::to_litgpt_yaml(config));
  copy_mapped(source, checkpoint::hugging_face_to_litgpt(source.tensors(), config), folder + "/lit_model.pth");
}

void from_litgpt(const std::string& folder, const std::string& target) {
  const std::string yaml = folder + "/model_config.yaml";
  auto config = checkpoint::parse_litgpt_config(trireme::base::read_file(yaml), yaml);
  const checkpoint::TorchFileSource source(folder + "/lit_model.pth");
  config.tie_word_embeddings = checkpoint::litgpt_head_is_tied(source);
  trireme::base::write_file_atomic(target + "/config.json", config.to_hugging_face_json("float32"));
  copy_mapped(source, checkpoint::litgpt_to_hugging_face(source.tensors(), config), target + "/pytorch_model.bin");
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 4) return 2;
  const std::string command = argv[1];
  if (command == "to_litgpt" && argc == 5) {
    to_litgpt(argv[2], argv[3], argv[4]);
    return 0;
  }
  if (command == "from_litgpt") {
    from_litgpt(argv[2], argv[3]);
    return 0;
  }
  const auto source = open_source(argv[2], argv[3]);
  if (command == "dump") {
    dump(*source);
    return 0;
  }
  checkpoint::TorchFileOptions options{.wrapper = argc > 6 ? argv[6] : "", .tied = {}};
  if (argc > 7) {
    const std::string pair = argv[7];
    options.tied.emplace_back(pair.substr(0, pair.find('=')), pair.substr(pair.find('=') + 1));
  }
  copy(*source, *open_sink(argv[4], argv[5], *source, options));
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
