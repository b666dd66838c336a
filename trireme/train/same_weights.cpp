#include "trireme/train/same_weights.h"

#include <fmt/format.h>

#include "trireme/adapt/base_fingerprint.h"
#include "trireme/base/checksum.h"
#include "trireme/checkpoint/agree.h"
#include "trireme/train/ranks.h"
#include "trireme/train/run_data.h"

namespace trireme::train {

std::string fingerprint_of(const model::ModelConfig& config) {
  model::ModelConfig plain = config;
  plain.source_json.clear();  // else its other words would count
  return base::checksum_text(base::hash_text(plain.to_hugging_face_json("float32")));
}

std::string fingerprint_of(const adapt::AdapterConfig& config) {
  adapt::AdapterConfig plain = config;
  plain.base_model_name_or_path.clear();
  return base::checksum_text(base::hash_text(adapt::adapter_config_json(plain)));
}

std::string fingerprint_of(const adapt::AdapterFolder& adapter) {
  checkpoint::Checkpoint files = adapter.files;
  std::erase_if(files.tensors, [&](const auto& tensor) {
    return files.files[static_cast<size_t>(tensor.second.file)]->path().filename() != adapt::kAdapterModelName;
  });
  return base::checksum_text(base::hash_text(fingerprint_of(adapter.config) + adapt::fingerprint_of(files)));
}

void require_same_folder(comm::Communicator& world, const launch::RankEnvironment& environment, const std::string& name,
                         const std::function<std::string()>& read) {
  if (world.size() == 1 || one_launcher_started_all(environment)) return;
  const std::string fingerprint = checkpoint::made_on_all(world, read);
  data::DataIdentity known;
  known.add(name, fingerprint.empty() ? "none" : fingerprint);
  require_same_data(world, known, "files");
}

}  // namespace trireme::train
