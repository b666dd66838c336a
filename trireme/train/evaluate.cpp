#include "trireme/train/evaluate.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/comm/communicator.h"
#include "trireme/observe/work_bar.h"
#include "trireme/train/cache_room.h"
#include "trireme/train/inference.h"
#include "trireme/train/judge.h"
#include "trireme/train/predict.h"
#include "trireme/train/score.h"

namespace trireme::train {
namespace fs = std::filesystem;

namespace {

/// Sums over all ranks; only ranks that count add their numbers.
std::vector<double> over_ranks(const Inference& in, std::vector<double> mine) {
  if (!in.counts) mine.assign(mine.size(), 0);
  const at::Tensor sums = at::tensor(mine, at::kDouble);
  in.world->all_reduce(sums, sums, {})->wait();
  return {sums.data_ptr<double>(), sums.data_ptr<double>() + sums.numel()};
}

std::string read_text(const fs::path& path) {
  if (!fs::is_directory(path)) return base::read_file_or_pipe(path);
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(path))
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  if (files.empty()) throw UsageError(fmt::format("evaluate.text: {} holds no *.txt file", path.string()));
  std::sort(files.begin(), files.end());
  std::string all;
  for (const fs::path& file : files) all += base::read_file(file);
  return all;
}

double sum_of(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

int64_t window_of(const train::EvaluateSettings& e, const model::ModelConfig& config) {
  return std::min(e.max_seq_length.value_or(1024), config.longest_generation());
}

nlohmann::json perplexity(Inference& in, const train::EvaluateSettings& e) {
  const std::string text = read_text(*e.text);
  std::vector<int64_t> ids = encode_text(*in.tokenizer, text, /*add_special=*/false);
  const int64_t window = window_of(e, in.config);
  int64_t bytes = static_cast<int64_t>(text.size());
  if (e.limit && *e.limit * window + 1 < static_cast<int64_t>(ids.size())) {
    ids.resize(static_cast<size_t>(*e.limit * window + 1));
    bytes = 0;
    for (const int64_t id : ids)
      bytes += static_cast<int64_t>(in.tokenizer->token_bytes(static_cast<int32_t>(id)).size());
  }
  if (ids.size() < 2) throw UsageError(fmt::format("evaluate.text: {} has fewer than two tokens", *e.text));
  const auto targets = static_cast<int64_t>(ids.size()) - 1, windows = (targets + window - 1) / window;
  Judge judge(in, "perplexity", static_cast<size_t>(windows));
  for (int64_t w = in.replica; w < windows; w += in.num_replicas) {
    const int64_t begin = w * window, count = std::min(window, targets - begin);
    judge.add(static_cast<size_t>(w), {ids.begin() + begin, ids.begin() + begin + count + 1}, 1);
  }
  double sum = 0;
  for (const std::vector<double>& of_window : judge.run()) sum += sum_of(of_window);
  const double nats = -over_ranks(in, {sum})[0];
  return {{"tokens", targets},
          {"bytes", bytes},
          {"window", window},
          {"loss", nats / double(targets)},
          {"perplexity", std::exp(nats / double(targets))},
          {"bits_per_byte", nats / std::log(2.0) / double(bytes)}};
}

std::vector<int64_t> context_of(const text::Tokenizer& tokenizer, const Question& question) {
  std::vector<int64_t> context = encode_text(tokenizer, question.context, /*add_special=*/true);
  return context.empty() ? encode_text(tokenizer, "\n", false) : context;
}

nlohmann::json multiple_choice(Inference& in, const train::EvaluateSettings& e) {
  std::vector<Question> questions = read_questions(*e.multiple_choice);
  if (e.limit && *e.limit < static_cast<int64_t>(questions.size())) questions.resize(static_cast<size_t>(*e.limit));
  size_t count = 0;
  for (const Question& question : questions) count += question.choices.size();
  Judge judge(in, "multiple choice", count);
  size_t number = 0;
  for (size_t q = 0; q < questions.size(); ++q) {
    const std::vector<int64_t> context = context_of(*in.tokenizer, questions[q]);
    for (const std::string& choice : questions[q].choices) {
      std::vector<int64_t> tokens = context;
      const std::vector<int64_t> ids = encode_text(*in.tokenizer, choice, false);
      tokens.insert(tokens.end(), ids.begin(), ids.end());
      const bool mine = static_cast<int64_t>(q) % in.num_replicas == in.replica;
      if (mine && !ids.empty()) judge.add(number, std::move(tokens), std::ssize(context));
      ++number;
    }
  }
  const std::vector<std::vector<double>>& logprobs = judge.run();
  std::vector<double> right(2);  // by sum, by sum per byte
  number = 0;
  for (size_t q = 0; q < questions.size(); ++q) {
    std::vector<double> score, per_byte;
    for (const std::string& choice : questions[q].choices) {
      score.push_back(sum_of(logprobs[number++]));
      per_byte.push_back(score.back() / double(std::max<size_t>(1, choice.size())));
    }
    if (static_cast<int64_t>(q) % in.num_replicas != in.replica) continue;
    const auto best = [&](const std::vector<double>& s) {
      return std::max_element(s.begin(), s.end()) - s.begin() == questions[q].answer ? 1.0 : 0.0;
    };
    right[0] += best(score);
    right[1] += best(per_byte);
  }
  right = over_ranks(in, right);
  const auto all = double(questions.size());
  return {{"questions", questions.size()}, {"acc", right[0] / all}, {"acc_norm", right[1] / all}};
}

/// Tokens of the longest text.
int64_t longest_text(const Inference& in, const train::EvaluateSettings& e) {
  int64_t longest = e.text ? window_of(e, in.config) : 1;
  if (e.multiple_choice)
    for (const Question& question : read_questions(*e.multiple_choice)) {
      const auto context = std::ssize(context_of(*in.tokenizer, question));
      for (const std::string& choice : question.choices)
        longest = std::max(longest, context + std::ssize(encode_text(*in.tokenizer, choice, false)));
    }
  if (e.score)
    for (const ScoredText& text : read_scored_texts(*e.score, *in.tokenizer, in.config.vocab_size))
      longest = std::max(longest, std::ssize(text.tokens));
  return longest;
}

const nlohmann::json* first_of(const nlohmann::json& j, std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    if (j.contains(key)) return &j[key];
  return nullptr;
}

Question parse_question(const nlohmann::json& j) {
  const nlohmann::json* context = first_of(j, {"context", "question", "ctx", "query"});
  const nlohmann::json* choices = first_of(j, {"choices", "endings"});
  const nlohmann::json* answer = first_of(j, {"answer", "label", "gold"});
  if (context == nullptr || !context->is_string()) throw UsageError("there is no text under \"context\"");
  if (choices == nullptr || !choices->is_array() || choices->empty())
    throw UsageError("there is no list of texts under \"choices\"");
  Question q{.context = context->get<std::string>()};
  for (const nlohmann::json& choice : *choices) {
    if (!choice.is_string() || choice.get<std::string>().empty())
      throw UsageError("an entry of \"choices\" is no text, or empty");
    q.choices.push_back(choice.get<std::string>());
  }
  if (answer != nullptr && answer->is_string()) {  // HellaSwag's labels are numbers in quotes
    const std::string text = answer->get<std::string>();
    q.answer = text.size() == 1 && text[0] >= '0' && text[0] <= '9' ? text[0] - '0' : -1;
  } else {
    q.answer = answer != nullptr && answer->is_number_integer() ? answer->get<int64_t>() : -1;
  }
  if (q.answer < 0 || q.answer >= static_cast<int64_t>(q.choices.size()))
    throw UsageError(fmt::format("\"answer\" is no number from 0 to {}", q.choices.size() - 1));
  return q;
}

int classify(const Settings& settings) {
  const train::EvaluateSettings& e = settings.evaluate;
  nlohmann::ordered_json report = {{"checkpoint", e.checkpoint}};
  const auto& r = report["classify"] = predict_labels(settings);
  std::string cut;
  if (const auto count = r["cut"].get<int64_t>(); count > 0)
    cut = fmt::format(", {} cut to the model's length", base::human_count(count));
  if (r.contains("accuracy"))
    fmt::print("classification   accuracy {:.4f}   macro F1 {:.4f}   loss {:.5f} nats a text   ({}{})\n",
               r["accuracy"].get<double>(), r["macro_f1"].get<double>(), r["loss"].get<double>(),
               base::plural(r["labelled"].get<int64_t>(), "text"), cut);
  else
    fmt::print("classification   {} without labels{}\n", base::plural(r["texts"].get<int64_t>(), "text"), cut);
  if (e.predictions) fmt::print("predictions      {}\n", *e.predictions);
  if (e.json) base::write_file_atomic(*e.json, report.dump(2) + "\n");
  return 0;
}

}  // namespace

std::vector<Question> read_questions(const fs::path& path) {
  std::istringstream in;
  try {
    in.str(base::read_file_or_pipe(path));
  } catch (const base::FileError& error) {
    throw UsageError(fmt::format("evaluate.multiple_choice: {}", error.what()));
  }
  std::vector<Question> questions;
  std::string line;
  for (int64_t number = 1; std::getline(in, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      questions.push_back(parse_question(base::parse_json(line)));
    } catch (const nlohmann::json::exception&) {
      throw UsageError(fmt::format("{}:{} is not JSON", path.string(), number));
    } catch (const UsageError& e) {
      throw UsageError(fmt::format("{}:{}: {}", path.string(), number, e.what()));
    }
  }
  if (questions.empty()) throw UsageError(fmt::format("{} holds no question", path.string()));
  return questions;
}

void check_evaluate(const Settings& settings) {
  const train::EvaluateSettings& e = settings.evaluate;
  if (!e.text && !e.multiple_choice && !e.classify && !e.score)
    throw UsageError(
        "nothing to evaluate: name a text with --text FILE (perplexity), questions with --multiple_choice FILE.jsonl, "
        "labelled texts with --classify FILE.jsonl, or texts with --score FILE.jsonl (log-probabilities)");
  if (e.predictions && !e.classify && !e.score)
    throw UsageError(
        "evaluate.predictions are those of the texts of --classify FILE.jsonl or --score FILE.jsonl; name these, too");
  if (e.classify && (e.text || e.multiple_choice || e.score))
    throw UsageError("a model that classifies texts writes none; evaluate --classify by itself");
  if (e.classify) return check_predict(settings);
  if (e.text && !fs::exists(*e.text)) throw UsageError(fmt::format("evaluate.text: there is no {}", *e.text));
  if (e.multiple_choice) read_questions(*e.multiple_choice);
  check_inference(settings, place_of(e), /*one_copy=*/false);
  if (e.score) check_score(settings);
}

int evaluate(const Settings& settings, const launch::RankEnvironment& environment) {
  const train::EvaluateSettings& e = settings.evaluate;
  if (e.classify) return classify(settings);
  Inference in = open_inference(settings, environment, place_of(e), [&](const Inference& known) {
    const int64_t longest = longest_text(known, e);
    return fitting_room(
        settings, environment, known,
        {.room = room_to_judge(known, longest), .needed_tokens = std::min(longest, known.config.longest_generation())});
  });
  nlohmann::ordered_json report = {{"checkpoint", in.folder.string()}};
  if (!in.adapter.empty()) report["adapter"] = in.adapter.string();
  if (e.text) report["perplexity"] = perplexity(in, e);
  if (e.multiple_choice) report["multiple_choice"] = multiple_choice(in, e);
  if (e.score) report["score"] = score_texts(in, e);
  if (!in.is_first_rank) return 0;
  if (e.text) {
    const auto& r = report["perplexity"];
    fmt::print(
        "perplexity       {:.4f}   loss {:.5f} nats a token   {:.5f} bits a byte   ({} tokens in windows of {})\n",
        r["perplexity"].get<double>(), r["loss"].get<double>(), r["bits_per_byte"].get<double>(),
        base::human_count(r["tokens"].get<int64_t>()), r["window"].get<int64_t>());
  }
  if (e.multiple_choice) {
    const auto& r = report["multiple_choice"];
    fmt::print("multiple choice  acc {:.4f}   acc_norm {:.4f}   ({})\n", r["acc"].get<double>(),
               r["acc_norm"].get<double>(), base::plural(r["questions"].get<int64_t>(), "question"));
  }
  if (e.score) {
    const auto& r = report["score"];
    fmt::print("log-probability  {:.5f} a token   ({} tokens of {})\n", r["logprob"].get<double>(),
               base::human_count(r["tokens"].get<int64_t>()), base::plural(r["texts"].get<int64_t>(), "text"));
    if (e.predictions) fmt::print("predictions      {}\n", *e.predictions);
  }
  if (e.json) base::write_file_atomic(*e.json, report.dump(2) + "\n");
  return 0;
}

}  // namespace trireme::train
