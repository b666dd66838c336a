// The settings of saving, and of `trireme convert`.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "trireme/checkpoint/dtype.h"
#include "trireme/config/declaration.h"

namespace trireme::checkpoint {

enum class SaveMode { sync, async };
std::span<const config::Choice<SaveMode>> choices_of(SaveMode);

enum class OnSaveError { stop, carry_on };
std::span<const config::Choice<OnSaveError>> choices_of(OnSaveError);

/// The dtype of the model's saved tensors.
enum class SaveDtype { as_loaded, fp32, bf16 };
std::span<const config::Choice<SaveDtype>> choices_of(SaveDtype);

/// Float dtypes under the names that `trireme checkpoint` uses.
std::span<const config::Choice<Dtype>> choices_of(Dtype);

/// What a checkpoint of adapters holds of their base model.
enum class BaseIn {
  reference,  ///< its path and a fingerprint
  copy,       ///< its files too
};
std::span<const config::Choice<BaseIn>> choices_of(BaseIn);

struct CheckpointSettings {
  BaseIn base = BaseIn::reference;
  bool operator==(const CheckpointSettings&) const = default;
};
config::Section section(CheckpointSettings& settings);

struct SaveSettings {
  SaveMode mode = SaveMode::sync;
  OnSaveError on_error = OnSaveError::stop;
  SaveDtype dtype = SaveDtype::as_loaded;
  int64_t keep_last = 3;
  bool keep_best = false;
  std::optional<int64_t> max_shard_bytes;
  bool operator==(const SaveSettings&) const = default;
};
config::Section section(SaveSettings& settings);

struct ConvertSettings {
  std::string source;
  std::optional<std::string> adapter, base;
  std::string out;
  std::optional<std::string> to;     ///< name of the new format
  std::optional<std::string> dtype;  ///< under the name that the format uses
  std::optional<std::string> quantize;  ///< name of a base::BlockFormat
  bool force = false;
  int64_t max_shard_bytes = 5'000'000'000;
  bool operator==(const ConvertSettings&) const = default;
};
config::Section section(ConvertSettings& settings);

}  // namespace trireme::checkpoint
