#include "trireme/train/evaluate.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <utility>

#include "trireme/base/checksum.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/base/log.h"
#include "trireme/base/named_file.h"
#include "trireme/base/not_text.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/agree.h"
#include "trireme/comm/communicator.h"
#include "trireme/data/conversation.h"
#include "trireme/data/text_files.h"
#include "trireme/observe/work_bar.h"
#include "trireme/settings/derived.h"
#include "trireme/text/around_text.h"
#include "trireme/train/cache_room.h"
#include "trireme/train/eval_tasks.h"
#include "trireme/train/inference.h"
#include "trireme/train/judge.h"
#include "trireme/train/predict.h"
#include "trireme/train/run_data.h"
#include "trireme/train/score.h"
#include "trireme/train/setup.h"
#include "trireme/train/write_answers.h"

namespace trireme::train {
namespace fs = std::filesystem;

namespace {

// Perplexity is that of one running text. What stands around the texts of records is none.
void refuse_records(const fs::path& path) {
  const auto kind = data::text_kind(path.string());
  if (data::may_hold_conversations(path) || (kind && *kind != data::TextKind::plain))
    throw UsageError(
        fmt::format("evaluate.text: {} holds records, and perplexity is that of plain text: write their texts to a "
                    ".txt, or judge each record with --score FILE.jsonl",
                    path.string()));
}

// The files of a folder are those that training takes.
std::vector<fs::path> files_of_folder(const fs::path& folder) try {
  const data::TextFiles found = data::TextFiles::list(std::array{folder.string()});
  std::vector<fs::path> files;
  for (int64_t i = 0; i < found.size(); ++i) files.push_back(found.path(i));
  return files;
} catch (const UsageError& error) {
  throw UsageError(fmt::format("evaluate.text: {}", error.what()));
}

std::vector<fs::path> text_files(const fs::path& path) {
  std::vector<fs::path> files = fs::is_directory(path) ? files_of_folder(path) : std::vector{path};
  std::ranges::for_each(files, refuse_records);
  return files;
}

/// A text, or those of a folder's files.
std::vector<std::string> read_texts(const fs::path& path) {
  std::vector<std::string> texts;
  for (const fs::path& file : text_files(path)) {
    texts.push_back(base::read_file_or_pipe(file));
    base::require_text(texts.back(), file);
  }
  return texts;
}

/// The ids of all texts, with the separator of documents between two of them, as in training.
std::vector<int64_t> encode_texts(const text::Tokenizer& tokenizer, const std::vector<std::string>& texts) {
  std::vector<int64_t> ids;
  for (const std::string& text : texts) {
    if (&text != &texts.front()) std::ranges::copy(tokenizer.document_separator(), std::back_inserter(ids));
    std::ranges::copy(encode_text(tokenizer, text, /*add_special=*/false, /*parse_special=*/false),
                      std::back_inserter(ids));
  }
  return ids;
}

std::string hash_of(const std::vector<std::string>& texts) {
  base::Checksum sum;
  for (const std::string& text : texts) {
    const size_t size = text.size();
    sum.update(std::as_bytes(std::span(&size, 1)));
    sum.update(std::as_bytes(std::span(text)));
  }
  return base::checksum_text(sum.value());
}

double sum_of(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

int64_t window_of(const train::EvaluateSettings& e, const model::ModelConfig& config) {
  return std::min(e.max_seq_length.value_or(1024), config.longest_generation());
}

/// An adapter lies in another folder than its base.
fs::path judged_weights(const Inference& in) { return in.adapter.empty() ? in.folder : fs::path(in.adapter); }

/// Logarithms of probabilities are finite where logits are, so this tells of damaged weights or a small dtype.
void warn_if_not_finite(const std::string& what, double loss, const fs::path& folder, at::ScalarType compute) {
  if (std::isfinite(loss)) return;
  const bool is_narrow = compute != at::kFloat && compute != at::kDouble;
  base::warn("{}: the loss is not finite; numbers of {} are NaN{}; take another checkpoint{}", what, folder.string(),
             is_narrow ? ", infinite or too large for this --precision" : " or infinite",
             is_narrow ? ", or --precision 32-true" : "");
}

void warn_if_not_finite(const Inference& in, const std::string& what, double loss) {
  if (in.is_first_rank) warn_if_not_finite(what, loss, judged_weights(in), in.engine->plan().request.precision.compute);
}

nlohmann::json perplexity(Inference& in, const train::EvaluateSettings& e) {
  const std::vector<std::string> texts = checkpoint::made_on_all(*in.world, [&] { return read_texts(*e.text); });
  data::DataIdentity read;
  read.add("evaluate.text", hash_of(texts));
  require_same_data(*in.world, read);
  std::vector<int64_t> ids = encode_texts(*in.tokenizer, texts);
  // A window begins with what begins the tokenizer's texts (<s>), or else with the token before it. The first window
  // has none before it, so its first token is not predicted.
  const std::vector<int32_t> begin_of_text = text::around_text(*in.tokenizer).before;
  const int64_t first = begin_of_text.empty() ? 1 : 0, in_front = std::max<int64_t>(1, std::ssize(begin_of_text));
  const int64_t window = window_of(e, in.config);
  if (e.max_seq_length.value_or(0) > window && in.is_first_rank)
    base::info("evaluate.max_seq_length {}: windows have {}, as {}", *e.max_seq_length, base::plural(window, "token"),
               in.config.generation_positions());
  const int64_t step = std::max<int64_t>(1, window + 1 - in_front);  // tokens that a window predicts
  int64_t bytes = 0;
  for (const std::string& text : texts) bytes += std::ssize(text);
  if (e.limit && *e.limit <= std::ssize(ids) && first + *e.limit * step < std::ssize(ids)) {
    // Tokens need not keep all bytes (WordPiece), so those of the text are shared as those of the tokens.
    const auto bytes_of = [&](std::span<const int64_t> tokens) {
      int64_t sum = 0;
      for (const int64_t wide : tokens)
        if (const auto id = static_cast<int32_t>(wide);
            !in.tokenizer->is_special(id))  // a separator is none of the text
          sum += std::ssize(in.tokenizer->token_bytes(id));
      return sum;
    };
    const int64_t kept = first + *e.limit * step, all = std::max<int64_t>(1, bytes_of(ids));
    ids.resize(static_cast<size_t>(kept));
    bytes = std::llround(double(bytes) * double(bytes_of(ids)) / double(all));
  }
  const int64_t targets = std::ssize(ids) - first, windows = (targets + step - 1) / step;
  if (targets < 1)
    throw UsageError(fmt::format("evaluate.text: {} has no token to predict; name a longer text", *e.text));
  Judge judge(in, "perplexity", static_cast<size_t>(windows));
  for (int64_t w = in.replica; w < windows; w += in.num_replicas) {
    const int64_t begin = first + w * step, count = std::min(step, std::ssize(ids) - begin);
    std::vector<int64_t> tokens(begin_of_text.begin(), begin_of_text.end());
    tokens.insert(tokens.end(), ids.begin() + begin - first, ids.begin() + begin + count);
    judge.add(static_cast<size_t>(w), std::move(tokens), in_front);
  }
  // Windows are added up in their order, whichever rank has judged them.
  const std::vector<Judged>& judged = judge.run();
  std::vector<double> sums(static_cast<size_t>(windows));
  for (size_t w = 0; w < sums.size() && in.counts; ++w) sums[w] = sum_of(judged[w].logprobs);
  sum_over_ranks(in, at::from_blob(sums.data(), {windows}, at::kDouble));
  const double nats = -sum_of(sums);
  warn_if_not_finite(in, "perplexity", nats);
  return {{"tokens", targets},
          {"bytes", bytes},
          {"window", window},
          {"loss", nats / double(targets)},
          {"perplexity", std::exp(nats / double(targets))},
          {"bits_per_byte", nats / std::log(2.0) / double(bytes)}};
}

/// A task whose texts are encoded: those of all choices of all questions, one behind the other, or the prompts.
struct EncodedTask {
  EvalTask task;
  std::vector<ScoredText> texts = {};
  std::vector<std::vector<int64_t>> prompts = {};
};

std::string hash_of(const EncodedTask& encoded) {
  base::Checksum sum;
  const auto add = [&](const std::vector<int64_t>& numbers) {
    const int64_t count = std::ssize(numbers);
    sum.update(std::as_bytes(std::span(&count, 1)));
    sum.update(std::as_bytes(std::span(numbers)));
  };
  for (const ScoredText& text : encoded.texts) add(text.tokens), add({text.first});
  for (const std::vector<int64_t>& prompt : encoded.prompts) add(prompt);
  for (const Question& question : encoded.task.questions) {
    add({static_cast<int64_t>(question.answer)});
    for (const std::string& target : question.targets) add({static_cast<int64_t>(base::hash_text(target))});
  }
  return base::checksum_text(sum.value());
}

/// Judge reads their newest tokens.
void tell_of_long_texts(const EncodedTask& task, const Inference& in) {
  const int64_t most = in.config.longest_generation() + 1;  // the last token is not read
  const int64_t cut =
      std::ranges::count_if(task.texts, [&](const ScoredText& t) { return std::ssize(t.tokens) > most; });
  if (cut > 0 && in.is_first_rank)
    base::info("{}: of {} only the newest {} are read, as {}", task.task.name, base::plural(cut, "text"),
               base::plural(most, "token"), in.config.generation_positions());
}

void encode_choices(const Question& question, const text::Tokenizer& tokenizer, std::vector<ScoredText>& texts) try {
  for (const Choice& choice : question.choices) texts.push_back(encode_pair(tokenizer, choice.context, choice.text));
} catch (const UsageError& error) {
  throw UsageError(fmt::format("{}: {}", question.place, error.what()));
}

std::vector<EncodedTask> encode_tasks(const EvaluateSettings& e, const Inference& in) {
  std::vector<EncodedTask> encoded;
  for (EvalTask& task : read_tasks(e)) {
    EncodedTask to{.task = std::move(task)};
    if (to.task.written) to.prompts = encode_prompts(in, to.task);
    for (const Question& question : to.task.questions) encode_choices(question, *in.tokenizer, to.texts);
    tell_of_long_texts(to, in);
    encoded.push_back(std::move(to));
  }
  return encoded;
}

/// Of each text of a task, the sum of its log-probabilities, and 1 if it is what greedy decoding writes: [texts,2].
at::Tensor judge_texts(Inference& in, const EncodedTask& encoded) {
  const std::vector<ScoredText>& texts = encoded.texts;
  Judge judge(in, encoded.task.name, texts.size());
  size_t number = 0, question = 0;
  for (const Question& q : encoded.task.questions) {
    const bool mine = static_cast<int>(question++ % static_cast<size_t>(in.num_replicas)) == in.replica;
    for (const size_t end = number + q.choices.size(); number < end; ++number)
      if (mine) judge.add(number, texts[number].tokens, texts[number].first);
  }
  const std::vector<Judged>& judged = judge.run();
  at::Tensor all = at::zeros({std::ssize(texts), 2}, at::kDouble);
  auto* const to = all.data_ptr<double>();
  for (size_t i = 0; i < texts.size() && in.counts; ++i)
    if (!judged[i].logprobs.empty()) {
      to[2 * i] = sum_of(judged[i].logprobs);
      to[2 * i + 1] = judged[i].is_greedy ? 1 : 0;
    }
  sum_over_ranks(in, all);
  return all;
}

/// `lines` gets a line for each question: its choices' log-probabilities.
nlohmann::ordered_json answer_task(Inference& in, const EncodedTask& encoded, std::string& lines) {
  const EvalTask& task = encoded.task;
  const at::Tensor all = judge_texts(in, encoded);
  const auto* of_text = all.data_ptr<double>();
  double right = 0, right_norm = 0, greedy = 0, nats = 0;
  for (const Question& question : task.questions) {
    std::vector<double> sums, norms;
    for (const Choice& choice : question.choices) {
      sums.push_back(of_text[0]);
      norms.push_back(sums.back() / double(choice.characters));
      greedy += of_text[1];
      nats -= of_text[0];
      of_text += 2;
    }
    const auto is_best = [&](const std::vector<double>& scores) {
      if (std::ranges::any_of(scores, [](double score) { return std::isnan(score); }))
        return 0.0;  // nothing was chosen
      return std::ranges::max_element(scores) - scores.begin() == static_cast<int64_t>(question.answer) ? 1.0 : 0.0;
    };
    right += is_best(sums);
    right_norm += is_best(norms);
    lines += nlohmann::ordered_json{{"task", task.name}, {"logprobs", sums}, {"answer", question.answer}}.dump() + "\n";
  }
  warn_if_not_finite(in, task.name, nats);
  const auto count = double(task.questions.size());
  const bool word = task.kind == EvalTaskKind::word;
  const double acc = (word ? greedy : right) / count, acc_norm = right_norm / count;
  nlohmann::ordered_json result = {
      {"questions", task.questions.size()}, {"acc", acc}, {"acc_stderr", error_of_mean(acc, count)}};
  if (task.kind == EvalTaskKind::choice_norm) {
    result["acc_norm"] = acc_norm;
    result["acc_norm_stderr"] = error_of_mean(acc_norm, count);
  }
  if (word) result["perplexity"] = std::exp(nats / count);
  return result;
}

/// Each metric with its error, if it has one.
void print_task(const std::string& name, const nlohmann::ordered_json& r) {
  std::vector<std::string> texts;
  for (const auto& [key, value] : r.items()) {
    if (key == "questions" || key.find("_stderr") != std::string::npos) continue;
    texts.push_back(fmt::format("{} {:.4f}", key, value.get<double>()));
    if (const auto error = r.find(stderr_key(key)); error != r.end())
      texts.back() += fmt::format(" +- {:.4f}", error->get<double>());
  }
  fmt::print("{:<16} {}   ({})\n", name, base::join(texts, "   "),
             base::plural(r["questions"].get<int64_t>(), "question"));
}

bool has_text(const EvaluateSettings& e) {
  return e.text || e.tasks || e.multiple_choice || !e.score || !has_ids_alone(*e.score);
}

/// Tokens of the longest text.
int64_t longest_text(const Inference& in, const EvaluateSettings& e, const std::vector<EncodedTask>& tasks) {
  int64_t longest = e.text ? window_of(e, in.config) : 1;
  for (const EncodedTask& task : tasks)
    for (const ScoredText& text : task.texts) longest = std::max(longest, std::ssize(text.tokens));
  if (e.score)
    for (const ScoredText& text : read_scored_texts(*e.score, in.tokenizer.get(), in.config.vocab_size))
      longest = std::max(longest, std::ssize(text.tokens));
  return longest;
}

/// Room for all that is judged, and for all answers that are written.
CacheWish cache_wish(const Inference& in, const EvaluateSettings& e, const std::vector<EncodedTask>& tasks) {
  const int64_t longest = longest_text(in, e, tasks);
  CacheWish wish{.room = room_to_judge(in, longest),
                 .needed_tokens = std::min(longest, in.config.longest_generation())};
  for (const EncodedTask& task : tasks)
    if (task.task.written) {
      const CacheWish more = room_for_written(in, task.task, task.prompts);
      wish.room.texts = std::max(wish.room.texts, more.room.texts);
      wish.room.tokens = std::max(wish.room.tokens, more.room.tokens);
      wish.room.cache_tokens = std::max(wish.room.cache_tokens, more.room.cache_tokens);
      wish.needed_tokens = std::max(wish.needed_tokens, more.needed_tokens);
    }
  return wish;
}

int classify(const Settings& settings) {
  const train::EvaluateSettings& e = settings.evaluate;
  nlohmann::ordered_json report = {{"checkpoint", e.checkpoint}};
  const auto& r = report["classify"] = predict_labels(settings);
  if (r.contains("loss"))
    warn_if_not_finite("classification", r["loss"].get<double>(), e.checkpoint, resolve_precision(settings).compute);
  std::string cut;
  if (const auto count = r["cut"].get<int64_t>(); count > 0)
    cut = fmt::format(", {} cut to {}", base::human_count(count),
                      base::plural(r["max_seq_length"].get<int64_t>(), "token"));
  if (r.contains("accuracy"))
    fmt::print("classification   accuracy {:.4f}   macro F1 {:.4f}   loss {:.5f} nats a text   ({}{})\n",
               r["accuracy"].get<double>(), r["macro_f1"].get<double>(), r["loss"].get<double>(),
               base::plural(r["labelled"].get<int64_t>(), "text"), cut);
  else
    fmt::print("classification   {} without labels{}\n", base::plural(r["texts"].get<int64_t>(), "text"), cut);
  if (e.predictions) fmt::print("predictions      {}\n", *e.predictions);
  if (e.json) base::write_named_file(*e.json, base::json_text(report, 2) + "\n");
  return 0;
}

}  // namespace

void check_evaluate(const Settings& settings) {
  const train::EvaluateSettings& e = settings.evaluate;
  const bool asks = e.multiple_choice || e.tasks;
  if (!e.text && !asks && !e.classify && !e.score)
    throw UsageError(
        "nothing to evaluate: name a text with --text FILE (perplexity), questions with --tasks NAME=FILE.jsonl or "
        "--multiple_choice FILE.jsonl, labelled texts with --classify FILE.jsonl, or texts with --score FILE.jsonl "
        "(log-probabilities)");
  if (e.fewshot && e.num_fewshot == 0)
    throw UsageError("evaluate.fewshot holds examples, but none is asked for; set evaluate.num_fewshot");
  if (e.num_fewshot > 0 && !e.tasks)
    throw UsageError("evaluate.num_fewshot belongs to --tasks NAME=FILE.jsonl; name it, too");
  if (e.predictions && int{asks} + int{e.classify.has_value()} + int{e.score.has_value()} != 1)
    throw UsageError(
        "evaluate.predictions are those of either --tasks and --multiple_choice, --classify or --score; name one of "
        "these");
  if (e.classify && (e.text || asks || e.score))
    throw UsageError("a model that classifies texts writes none; evaluate --classify by itself");
  if (e.classify) return check_predict(settings);
  if (e.text && !fs::exists(*e.text)) throw UsageError(fmt::format("evaluate.text: there is no {}", *e.text));
  if (e.text && world_size(settings) > 1 && fs::is_other(*e.text))
    throw UsageError(
        fmt::format("evaluate.text: {} is neither a file nor a folder, and each of {} ranks would read it; write the "
                    "text to a file, or take one rank",
                    *e.text, world_size(settings)));
  if (e.text)
    for (const fs::path& file : text_files(*e.text))
      if (base::is_file(file)) base::require_text_file(file);
  Inference known = check_inference(settings, place_of(e), /*one_copy=*/false, [&e] { return has_text(e); });
  known.is_first_rank = false;  // what is told about tasks is told by the ranks
  encode_tasks(e, known);
  if (e.score) check_score(e, known.tokenizer.get(), known.config);
}

int evaluate(const Settings& settings, const launch::RankEnvironment& environment) {
  const train::EvaluateSettings& e = settings.evaluate;
  if (e.classify) return classify(settings);
  std::vector<EncodedTask> tasks;
  Inference in = open_inference(
      settings, environment, place_of(e),
      [&](const Inference& known) {
        data::DataIdentity read;
        checkpoint::agree(*known.world, [&] {
          tasks = encode_tasks(e, known);
          for (const EncodedTask& task : tasks) {
            read.add("the questions of " + task.task.name, hash_of(task));
            if (const auto& written = task.task.written)
              read.add("the rules of " + task.task.name, base::checksum_text(base::hash_text(rules_of(*written))));
          }
          if (e.score) read.add("evaluate.score", base::checksum_text(base::hash_text(base::read_file(*e.score))));
        });
        require_same_data(*known.world, read);
        return fitting_room(settings, environment, known, cache_wish(known, e, tasks));
      },
      [&e] { return has_text(e); });
  nlohmann::ordered_json report = {{"checkpoint", in.folder.string()}};
  if (!in.adapter.empty()) report["adapter"] = in.adapter.string();
  if (e.text) report["perplexity"] = perplexity(in, e);
  std::string lines;  // of evaluate.predictions
  for (const EncodedTask& task : tasks) {
    const bool own = e.multiple_choice && &task == &tasks.front();
    (own ? report["multiple_choice"] : report["tasks"][task.task.name]) =
        task.task.written ? write_answers(in, task.task, task.prompts, settings.seed, lines)
                          : answer_task(in, task, lines);
  }
  if (e.score) report["score"] = score_texts(in, e);
  if (!in.is_first_rank) return 0;
  if (e.predictions && !tasks.empty()) base::write_named_file(*e.predictions, lines);
  if (e.text) {
    const auto& r = report["perplexity"];
    fmt::print(
        "perplexity       {:.4f}   loss {:.5f} nats a token   {:.5f} bits a byte   ({} tokens in windows of {})\n",
        r["perplexity"].get<double>(), r["loss"].get<double>(), r["bits_per_byte"].get<double>(),
        base::human_count(r["tokens"].get<int64_t>()), r["window"].get<int64_t>());
  }
  if (e.multiple_choice) print_task("multiple choice", report["multiple_choice"]);
  if (e.tasks)
    for (const auto& [name, result] : report["tasks"].items()) print_task(name, result);
  if (e.score) {
    const auto& r = report["score"];
    warn_if_not_finite(in, "log-probability", r["logprob"].get<double>());
    fmt::print("log-probability  {:.5f} a token   ({} tokens of {})\n", r["logprob"].get<double>(),
               base::human_count(r["tokens"].get<int64_t>()), base::plural(r["texts"].get<int64_t>(), "text"));
  }
  if (e.predictions) fmt::print("predictions      {}\n", *e.predictions);
  if (e.json) base::write_named_file(*e.json, base::json_text(report, 2) + "\n");
  return 0;
}

}  // namespace trireme::train
