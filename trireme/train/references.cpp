#include "trireme/train/references.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <span>
#include <string>

#include "trireme/adapt/adapter_folder.h"
#include "trireme/adapt/base_fingerprint.h"
#include "trireme/adapt/from_settings.h"
#include "trireme/adapt/merge.h"
#include "trireme/adapt/open_model.h"
#include "trireme/adapt/resolve.h"
#include "trireme/base/checksum.h"
#include "trireme/base/files.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/agree.h"
#include "trireme/checkpoint/naming.h"
#include "trireme/comm/communicator.h"
#include "trireme/config/choices.h"
#include "trireme/data/batch_loader.h"
#include "trireme/observe/work_bar.h"
#include "trireme/settings/derived.h"
#include "trireme/settings/take_over.h"
#include "trireme/train/checkpointing.h"
#include "trireme/train/model_source.h"
#include "trireme/train/out_dir.h"
#include "trireme/train/same_weights.h"
#include "trireme/train/setup.h"
#include "trireme/train/starting_point.h"

namespace trireme::train {
namespace fs = std::filesystem;

namespace {

using data::PreferenceDataset;

// Adapters that add nothing: B is zero. (So it is in new adapters, unless lora.init is random.)
void silence_adapters(Session& s) {
  for (engine::GroupState& group : s.engine->state()) {
    const auto& tensors = group.layout->tensors();
    for (size_t i = 0; i < tensors.size(); ++i) {
      const std::string& name = (*group.parameters)[i].name;
      if (!model::is_adapter(name) || name.find("lora_B") == std::string::npos) continue;
      const int64_t begin = std::max(group.held.begin, tensors[i].offset),
                    end = std::min(group.held.end, tensors[i].offset + tensors[i].numel);
      if (begin < end) group.master.narrow(0, begin - group.held.begin, end - begin).zero_();
    }
  }
  s.engine->refresh_weights();
}

// Two numbers for each pair of `rows`: this rank's part of them, and 0 for all others.
class Scoring {
 public:
  Scoring(Session& s, const std::shared_ptr<const PreferenceDataset>& rows)
      : s_(s), rows_(rows), sums_(at::zeros({2, std::ssize(rows->pairs())}, at::kDouble)) {}

  // Returns false if the ranks stop.
  bool run(const StopCheck& stops, const std::function<void(double)>& show) {
    const plan::StepRequest& r = s_.engine->plan().request;
    data::ValidationLoader loader(rows_, {.shard_index = r.data_index(),
                                          .num_shards = r.num_data_ranks(),
                                          .micro_batch = s_.settings.train.micro_batch_size,
                                          .global_batch = s_.settings.train.global_batch_size});
    const bool counts = r.coordinate(comm::Axis::tp) == 0 && r.coordinate(comm::Axis::cp) == 0;
    data::Batch batch;
    s_.model.scores->taken = [&](int, const at::Tensor& sums) {
      if (counts) take(batch, sums);
    };
    bool stopped = false;
    for (int64_t round = 0; round < loader.num_rounds() && !stopped; ++round) {
      batch = loader.batch(round);
      s_.engine->evaluate([&](int, const engine::BatchTensors& to) { load(to, batch); }, 1);
      show(static_cast<double>(round + 1) / static_cast<double>(loader.num_rounds()));
      stopped = stops();
    }
    s_.model.scores->taken = nullptr;
    if (!stopped) s_.world().all_reduce(sums_, sums_, {})->wait();
    return !stopped;
  }

  ReferenceScores result() const {
    const auto* chosen = sums_.data_ptr<double>();
    const auto count = rows_->pairs().size();
    return {{chosen, chosen + count}, {chosen + count, chosen + 2 * count}};
  }

 private:
  // A target is a reply's: the sums are over these.
  void load(const engine::BatchTensors& to, const data::Batch& batch) const {
    s_.load(to, batch);
    if (!to.targets.defined()) return;
    std::vector<double> reply(batch.targets.size()), none(batch.targets.size());
    for_texts(batch, [&](int64_t, const data::ReplyText& text, size_t at) {
      for (int64_t i = std::max<int64_t>(1, text.prompt_tokens); i < std::ssize(text.tokens); ++i)
        reply[at + static_cast<size_t>(i) - 1] = 1;
    });
    const auto bits = [](const std::vector<double>& values) {
      return std::span(reinterpret_cast<const int64_t*>(values.data()), values.size());
    };
    s_.copy_local(to.targets[model::PairInput::reply], bits(reply));
    s_.copy_local(to.targets[model::PairInput::likelihood], bits(none));
    s_.copy_local(to.targets[model::PairInput::reference], bits(none));
  }

  void take(const data::Batch& batch, const at::Tensor& sums) {
    const auto* from = sums.data_ptr<double>();
    auto* to = sums_.mutable_data_ptr<double>();
    for_texts(batch, [&](int64_t number, const data::ReplyText&, size_t at) { to[number] = from[at]; });
  }

  // body(number of the text's sum, text, where it begins in the micro-batch)
  template <class Body>
  void for_texts(const data::Batch& batch, const Body& body) const {
    const int64_t num_pairs = std::ssize(rows_->pairs());
    for (int64_t i = 0; i < batch.num_samples; ++i) {
      auto at = static_cast<size_t>(i * rows_->sequence());
      for (const int64_t pair : rows_->row(batch.first_sample + i)) {
        const data::TokenPair& p = rows_->pairs()[static_cast<size_t>(pair)];
        body(pair, p.chosen, at);
        at += static_cast<size_t>(p.chosen.places());
        body(num_pairs + pair, p.rejected, at);
        at += static_cast<size_t>(p.rejected.places());
      }
    }
  }

  Session& s_;
  std::shared_ptr<const PreferenceDataset> rows_;
  at::Tensor sums_;
};

// The scores of all pairs as bytes, with a checksum behind them.
std::string to_bytes(const References& r) {
  std::string bytes;
  for (const auto* values : {&r.train.chosen, &r.train.rejected, &r.val.chosen, &r.val.rejected})
    bytes.append(reinterpret_cast<const char*>(values->data()), values->size() * sizeof(double));
  return bytes + base::checksum_text(base::hash_text(bytes));
}

// Nothing if the bytes are not those of as many pairs.
std::optional<References> from_bytes(const std::string& bytes, size_t num_train, size_t num_val) {
  const size_t size = 2 * (num_train + num_val) * sizeof(double);
  const std::string_view values = std::string_view(bytes).substr(0, std::min(size, bytes.size()));
  if (bytes.size() < size || bytes.substr(size) != base::checksum_text(base::hash_text(values))) return std::nullopt;
  References r;
  const char* from = bytes.data();
  const auto read = [&](std::vector<double>& to, size_t count) {
    to.resize(count);
    std::memcpy(to.data(), from, count * sizeof(double));
    from += count * sizeof(double);
  };
  read(r.train.chosen, num_train);
  read(r.train.rejected, num_train);
  read(r.val.chosen, num_val);
  read(r.val.rejected, num_val);
  return r;
}

// The folder that holds the reference's adapter; "": the reference has none. A checkpoint may hold its base, too.
fs::path adapter_of(const std::optional<std::string>& named) {
  return named && adapt::is_adapter_folder(*named) ? fs::path(*named) : fs::path();
}

std::string fingerprint_of_reference(const Settings& settings) {
  const fs::path adapter = adapter_of(settings.dpo.reference);
  if (adapter.empty()) return adapt::fingerprint_of(adapt::open_base(reference_folder(settings)));
  return fmt::format("{} {}", adapt::fingerprint_of(adapt::open_base(starting_weights(settings))),
                     adapt::mark_of(adapt::open_adapter_folder(adapter).files));
}

fs::path cache_of(const Settings& settings, const data::PreferenceData& data) {
  const std::string key = fmt::format(
      "{} {:016x} {:016x} {} {}", fingerprint_of_reference(settings), data.data.identity.fingerprint(),
      data.data.held_out_hash, config::name_of(number_format(settings)), config::name_of(settings.model.quantize));
  return fs::path(settings.out_dir) / kTokensFolder /
         fmt::format("references-{}.bin", base::checksum_text(base::hash_text(key)));
}

void check_adapter(const fs::path& folder, const Settings& settings, const model::ModelConfig& model) {
  // What a pass without dropout shows of an adapter, and nothing of how it learns.
  const auto shape_of = [](model::Adapters adapters) {
    for (auto& [name, spec] : adapters.modules) spec.dropout = 0, spec.init = {}, spec.rate_of_b = 1;
    return adapters;
  };
  const adapt::AdapterFolder adapter = adapt::open_adapter_folder(folder);
  const adapt::FittedAdapter fitted = adapt::fit(adapter, model);
  if (shape_of(fitted.adapters) != shape_of(adapt::adapters_of(settings.lora, model)))
    throw UsageError(
        fmt::format("{} is an adapter of another configuration than the one that is trained; merge it into its base "
                    "with trireme merge_lora, and name the result",
                    folder.string()));
  const checkpoint::Checkpoint base = adapt::open_base(starting_weights(settings));
  adapt::check_base(base, adapter);
  adapt::check_copies(base, adapter, fitted, checkpoint::naming_of(base, adapt::modules_of(model).front().weight));
}

}  // namespace

void check_reference(const Settings& s) {
  const bool compares = s.task == Learning::preferences, is_rewarded = s.task == Learning::rewards;
  const std::optional<std::string> folder = compares ? s.dpo.reference : is_rewarded ? s.grpo.reference : std::nullopt;
  if (!folder) return;
  const char* const key = compares ? "dpo.reference" : "grpo.reference";
  const fs::path adapter = adapter_of(folder);
  // A folder that holds the adapter's base too would be compared with as that base alone.
  if (!adapter.empty() && !s.lora.r && !s.lora.initial_adapter)
    throw UsageError(
        fmt::format("{}: {} is an adapter, and this run trains all weights; name a model that trireme merge_lora {} "
                    "makes of it",
                    key, adapter.string(), base::shell_quoted(adapter.string())));
  try {
    const model::ModelConfig model = model::config_of(s.model);
    if (!adapter.empty())
      check_adapter(adapter, s, model);
    else
      describe_source(adapt::open_base(*folder), model::build_model(model, resolve_precision(s)));
  } catch (const Error& error) {
    throw UsageError(fmt::format("{}: {}; a reference has the shape of the model that is trained", key, error.what()));
  }
}

namespace {

// The folders that a reference is loaded from.
struct ReferencePlace {
  fs::path folder, adapter;

  ReferencePlace(const Session& s, const std::optional<std::string>& named)
      : adapter(s.model.adapters.empty() ? fs::path() : adapter_of(named)) {
    folder = named && adapter.empty() ? fs::path(*named) : starting_weights(s.settings);
  }
  std::string fingerprint() const {
    const std::string base = adapt::fingerprint_of(adapt::open_base(folder));
    return adapter.empty() ? base : base + " " + fingerprint_of(adapt::open_adapter_folder(adapter));
  }
};

const std::optional<std::string>& named_reference(const Settings& s) {
  return s.task == Learning::rewards ? s.grpo.reference : s.dpo.reference;
}

}  // namespace

void keep_reference(Session& s, RunState& state) {
  const auto& named = named_reference(s.settings);
  const ReferencePlace place(s, named);
  const std::string now = checkpoint::made_on_all(s.world(), [&] { return place.fingerprint(); });
  const bool is_another = !state.reference.empty() && state.reference != now;
  if (is_another && named == named_reference(settings_in(state.settings_yaml)))
    throw UsageError(
        fmt::format("{} has other weights now than those that the run compares its model with; name the folder of "
                    "those: --{} FOLDER",
                    place.folder.string(), s.settings.task == Learning::rewards ? "grpo.reference" : "dpo.reference"));
  state.reference = now;
}

void load_reference(Session& s, const std::optional<std::string>& named) {
  const bool adapts = !s.model.adapters.empty();
  const ReferencePlace place(s, named);
  const fs::path &adapter = place.adapter, &folder = place.folder;
  require_same_folder(s.world(), s.environment, "the reference's weights", [&] { return place.fingerprint(); });
  const auto seed = static_cast<uint64_t>(s.settings.seed);
  s.engine->initialize(seed);
  load_run(*s.engine, s.model, folder, s.world(), adapts ? LoadWhat::base : LoadWhat::weights);
  if (!adapts) return;
  if (!adapter.empty()) {
    load_run(*s.engine, s.model, adapter, s.world(), LoadWhat::weights);
    return;
  }
  load_magnitudes(*s.engine, s.model, folder, s.world(), seed);
  silence_adapters(s);
}

fs::path reference_folder(const Settings& settings) {
  return settings.dpo.reference ? fs::path(*settings.dpo.reference) : starting_weights(settings);
}

References reference_scores(Session& s, const data::PreferenceData& data, const StopCheck& stops) {
  std::string cached, path;
  checkpoint::agree(s.world(), [&] {
    if (!s.is_first_rank()) return;
    path = cache_of(s.settings, data).string();
    if (fs::exists(path)) cached = base::read_file(path);
  });
  const size_t num_train = data.train->pairs().size(), num_val = data.val->pairs().size();
  cached = checkpoint::broadcast_text(s.world(), cached, 0);
  if (auto known = from_bytes(cached, num_train, num_val)) return *std::move(known);
  load_reference(s, s.settings.dpo.reference);
  Scoring train(s, data.train), val(s, data.val);
  observe::WorkBar bar("log-probabilities of the reference");
  const double share = static_cast<double>(num_train) / static_cast<double>(num_train + num_val);
  const auto show = [&](double done) {
    if (s.is_first_rank()) bar.show(done);
  };
  if (!train.run(stops, [&](double done) { show(share * done); }) ||
      !val.run(stops, [&](double done) { show(share + (1 - share) * done); }))
    return {train.result(), val.result()};
  References scores{train.result(), val.result()};
  checkpoint::agree(s.world(), [&] {
    if (!s.is_first_rank()) return;
    fs::create_directories(fs::path(path).parent_path());
    base::write_file_atomic(path, to_bytes(scores));
  });
  return scores;
}

}  // namespace trireme::train
