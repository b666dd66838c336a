#include "trireme/checkpoint/rewrite.h"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/checkpoint/inspect.h"
#include "trireme/checkpoint/load.h"
#include "trireme/checkpoint/quantized_tensors.h"
#include "trireme/checkpoint/tensor_source.h"
#include "trireme/comm/factory.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

/// config.json with the new dtype, if it names one; else unchanged, byte for byte.
std::string config_with(const std::string& text, std::optional<Dtype> dtype) {
  if (!dtype || text.empty()) return text;
  auto config = base::parse_json_if_sound<nlohmann::ordered_json>(text);
  if (!config.is_object()) return text;  // the save refuses what is no JSON
  bool named = false;
  for (const char* key : {"torch_dtype", "dtype"}) {
    if (!config.contains(key)) continue;
    config[key] = torch_name(*dtype);
    named = true;
  }
  return named ? config.dump(2) + "\n" : text;
}

/// True for files to be copied: they are neither weights nor written by every save.
bool comes_along(const fs::directory_entry& entry) {
  static const std::set<std::string> kOthers = {".safetensors", ".bin",     ".pt",   ".pth",   ".gguf",
                                                ".h5",          ".msgpack", ".onnx", ".distcp"};
  const std::string name = entry.path().filename().string();
  return entry.is_regular_file() && is_plain_name(name) && !kOthers.contains(entry.path().extension().string()) &&
         !name.ends_with(".safetensors.index.json") && !name.ends_with(".bin.index.json") && name != kManifestName &&
         name != kStateName && name != "config.json" && name != "generation_config.json" &&
         static_cast<int64_t>(entry.file_size()) <= base::kLargestSideFile;
}

std::string text_of(const Checkpoint& checkpoint, const std::string& name) {
  const bool there =
      checkpoint.has_manifest ? checkpoint.manifest.files.contains(name) : fs::exists(checkpoint.path / name);
  return there ? read_text(checkpoint, name) : "";
}

class Rewrite {
 public:
  Rewrite(const fs::path& from, const fs::path& to, const RewriteOptions& options)
      : source_(open_checkpoint(from)), options_(options) {
    warn_if_ruined(source_.path, source_.manifest.ruined);
    const fs::path target = to.has_filename() ? to : to.parent_path();
    if (fs::exists(target))
      throw CheckpointError(fmt::format("{} exists already; name a folder that does not", target.string()),
                            target.string());
    request_.out_dir = base::parent_of(target);
    request_.name = target.filename().string();
    request_.elsewhere = kOtherPlace;
    request_.may_replace = false;
    request_.step = source_.step;
    request_.ruined = source_.manifest.ruined;
    request_.max_shard_bytes = options.max_shard_bytes;
    request_.progress = options.progress;
    request_.progress_after = std::chrono::milliseconds(200);  // it may end the work
  }

  SaveResult run() {
    const std::string config = text_of(source_, "config.json");
    if (options_.dtype) refuse_dtype_beside_codes(config, source_.path.string());
    add_tensors(false, request_.model);
    if (!options_.weights_only) {
      add_tensors(true, request_.optimizer);
      keep_frozen_bits();
    }
    const bool has_state = !options_.weights_only && source_.has_manifest;
    request_.state_json = has_state ? text_of(source_, kStateName) : "";
    request_.config_json = config_with(config, options_.dtype);
    request_.generation_config_json = text_of(source_, "generation_config.json");
    for (const auto& entry : fs::directory_iterator(source_.path)) {
      const std::string name = entry.path().filename().string();
      if (comes_along(entry) && (!source_.has_manifest || source_.manifest.files.contains(name)))
        request_.extra_files[name] = read_text(source_, name);
    }
    const comm::CommunicatorPtr alone = comm::make_communicator({});
    return save_checkpoint(request_, *alone);
  }

 private:
  void add_tensors(bool optimizer, std::vector<TensorSpec>& specs) {
    for (TensorSpec spec : tensors_in_order(source_, optimizer)) {
      std::string from = spec.name;
      if (!optimizer) {
        const Dtype stored = spec.dtype;
        spec.dtype = dtype_for(spec, options_.dtype);
        const bool wider = size_of(spec.dtype) > size_of(stored);
        if (wider && source_.has_tensor(spec.name + ".master")) from = spec.name + ".master";
      }
      add(std::move(spec), from, specs);
    }
  }

  void add(TensorSpec spec, const std::string& from, std::vector<TensorSpec>& specs) {
    request_.pieces.push_back({.tensor = spec.name,
                               .begin = 0,
                               .end = num_elements(spec.shape),
                               .dtype = spec.dtype,
                               .fill = [this, from, dtype = spec.dtype](int64_t begin, int64_t end, void* to) {
                                 fill(from, begin, end, dtype, to);
                               }});
    specs.push_back(std::move(spec));
  }

  // Frozen weights have no master: a run that goes on from the new folder would lose what its dtype cannot hold.
  void keep_frozen_bits() {
    if (request_.optimizer.empty()) return;  // no run goes on
    for (const TensorSpec& spec : request_.model) {
      const Dtype stored = source_.tensor(spec.name).dtype;
      const std::string master = spec.name + ".master";
      if (!holds(spec.dtype, stored) && !source_.has_tensor(master))
        add({master, spec.shape, stored}, spec.name, request_.optimizer);
    }
  }

  void fill(const std::string& from, int64_t begin, int64_t end, Dtype dtype, void* to) const {
    read_piece(source_, {from, begin, end, to, dtype});
    const auto before = [&](int64_t i) {
      double value = 0;
      read_piece(source_, {from, begin + i, begin + i + 1, &value, Dtype::f64});
      return value;
    };
    if (dtype == Dtype::f16) check_fits_float16(to, end - begin, before, from, source_.path.string());
  }

  Checkpoint source_;
  RewriteOptions options_;
  SaveRequest request_;
};

}  // namespace

SaveResult rewrite(const fs::path& from, const fs::path& to, const RewriteOptions& options) {
  return Rewrite(from, to, options).run();
}

}  // namespace trireme::checkpoint
