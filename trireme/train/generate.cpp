#include "trireme/train/generate.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/stopwatch.h"
#include "trireme/comm/communicator.h"
#include "trireme/text/chat_encoder.h"
#include "trireme/text/utf8.h"
#include "trireme/train/inference.h"

namespace trireme::train {

std::string StopWords::push(std::string_view text) {
  if (found_) return "";
  waiting_ += text;
  size_t shown = waiting_.size();
  for (const std::string& word : words_) {
    if (word.empty()) continue;
    if (const size_t at = waiting_.find(word); at != std::string::npos) {
      found_ = true;
      shown = std::min(shown, at);
      continue;
    }
    // The longest end of the text with which some word begins.
    for (size_t size = std::min(word.size() - 1, waiting_.size()); size > 0; --size)
      if (std::string_view(waiting_).ends_with(std::string_view(word).substr(0, size))) {
        shown = std::min(shown, waiting_.size() - size);
        break;
      }
  }
  std::string out = waiting_.substr(0, shown);
  waiting_.erase(0, shown);
  return out;
}

std::string StopWords::finish() { return found_ ? "" : std::exchange(waiting_, ""); }

namespace {

std::vector<int64_t> wide(std::span<const int32_t> ids) { return {ids.begin(), ids.end()}; }

/// The next line of rank 0's standard input, on every rank; nothing at its end.
std::optional<std::string> read_line(comm::Communicator& world) {
  std::string line;
  at::Tensor size = at::full({1}, -1, at::kLong);
  if (world.rank() == 0) {
    if (isatty(STDIN_FILENO) != 0) fmt::print(stderr, "> ");
    if (std::getline(std::cin, line)) size.fill_(static_cast<int64_t>(line.size()));
  }
  world.broadcast(size, 0)->wait();
  if (size.item<int64_t>() < 0) return std::nullopt;
  at::Tensor bytes = at::zeros({std::max<int64_t>(1, size.item<int64_t>())}, at::kByte);
  std::memcpy(bytes.data_ptr(), line.data(), line.size());
  world.broadcast(bytes, 0)->wait();
  return std::string(static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(size.item<int64_t>()));
}

/// Draws texts and shows them token by token.
class Writer {
 public:
  Writer(const train::GenerateSettings& g, Inference& in, const std::function<void(std::string_view)>& write)
      : g_(g), in_(in), write_(write), seed_(static_cast<uint64_t>(g.seed)) {}

  void show(std::string_view text) {
    if (in_.is_first_rank && !text.empty()) write_(text);
  }

  /// For chat templates whose replies begin with a space.
  void drop_first_space() { drops_space_ = true; }

  void reply(std::span<const int64_t> prompt) {
    text::Utf8Stream stream;
    bool is_first = true;
    StopWords stop(g_.stop.value_or(std::vector<std::string>{}));
    const model::SamplingOptions options{
        .temperature = g_.temperature, .top_k = g_.top_k, .top_p = g_.top_p, .seed = seed_++};
    in_.generator->generate(prompt, g_.max_new_tokens, options, [&](int64_t token) {
      if (std::find(in_.stop_ids.begin(), in_.stop_ids.end(), token) != in_.stop_ids.end()) return false;
      ++count_;
      std::string text = in_.tokenizer->token_bytes(static_cast<int32_t>(token));
      if (drops_space_ && is_first && text.starts_with(' ')) text.erase(0, 1);
      is_first = false;
      show(stop.push(stream.push(text)));
      return !stop.found();
    });
    if (!stop.found()) show(stop.push(stream.finish()));
    show(stop.finish());
    show("\n");
  }

  int64_t count() const { return count_; }

 private:
  const train::GenerateSettings& g_;
  Inference& in_;
  const std::function<void(std::string_view)>& write_;
  uint64_t seed_;
  bool drops_space_ = false;
  int64_t count_ = 0;
};

const text::ChatFamily& chat_family(const train::GenerateSettings& g, const std::filesystem::path& folder) {
  if (g.chat_template) return text::find_chat_family(*g.chat_template);
  if (const auto name = text::chat_family_of(folder)) return text::find_chat_family(*name);
  throw UsageError(
      fmt::format("{} names no chat template that is known; name one with --chat_template", folder.string()));
}

// One reply to each line of standard input.
void converse(const train::GenerateSettings& g, Inference& in, Writer& writer) {
  const text::ChatFamily& family = chat_family(g, in.folder);
  const text::ChatEncoder encoder(*in.tokenizer, family);
  if (*family.words_begin != '\0') writer.drop_first_space();
  if (family.stop != nullptr)
    if (const auto id = in.tokenizer->token_id(family.stop)) in.stop_ids.push_back(*id);
  for (bool first = true; const auto line = read_line(*in.world); first = false) {
    const text::ChatMessage message{"user", *line};
    std::vector<text::ChatMessage> begin;
    if (g.system) begin.push_back({"system", *g.system});
    begin.push_back(message);
    const auto pieces =
        first ? text::render_chat(family, begin, {.for_reply = true}) : text::render_next(family, message);
    writer.reply(wide(encoder.encode(pieces).ids));
  }
}

void continue_prompt(const train::GenerateSettings& g, Inference& in, Writer& writer) {
  std::vector<int64_t> prompt = wide(in.tokenizer->encode(g.prompt, {.parse_special = true, .add_special = true}));
  if (prompt.empty()) prompt = wide(in.tokenizer->document_separator());  // what stands before any text
  if (prompt.empty()) prompt = wide(in.tokenizer->encode("\n"));
  writer.show(g.prompt);
  writer.reply(prompt);
}

}  // namespace

void check_generate(const Settings& settings) {
  const adapt::ModelPlace place = place_of(settings.generate);
  check_inference(settings, place, /*one_copy=*/true);
  if (settings.generate.chat) chat_family(settings.generate, adapt::weights_of(place));
}

int generate(const Settings& settings, const launch::RankEnvironment& environment,
             const std::function<void(std::string_view)>& write) {
  const train::GenerateSettings& g = settings.generate;
  Inference in = open_inference(settings, environment, place_of(g));
  if (settings.model.free.latent) in.generator->fix_latent(*settings.model.free.latent);
  if (settings.model.free.latent_seed)
    in.generator->seed_latent(static_cast<uint64_t>(*settings.model.free.latent_seed));
  Writer writer(g, in, write);
  const base::Stopwatch watch;
  g.chat ? converse(g, in, writer) : continue_prompt(g, in, writer);
  if (in.is_first_rank && !g.chat && isatty(STDERR_FILENO) != 0)
    fmt::print(stderr, "{} tokens in {:.1f} s, {:.1f} tokens/s\n", writer.count(), watch.seconds(),
               double(writer.count()) / watch.seconds());
  return 0;
}

}  // namespace trireme::train
