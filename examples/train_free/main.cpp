// Writes the rows of the Free Transformer's synthetic task, and shows what trained models write (rows.h; the script
// `regimes` trains them and calls both).
//
//     cmake -S examples/train_free -B build/train_free -DCMAKE_PREFIX_PATH=$HOME/trireme-installed   (see own_model)
//     cmake --build build/train_free
//     build/train_free/rows write out/rows.jsonl count=20000 seed=1
//     build/train_free/rows show svg=regimes.svg "1/8 bit=out/eighth" "1 bit=out/one"
//
// Of each model, blocks of 8 rows are generated from the prompt alone: with one latent for all 8, and with one each.
// Both also take length=64 letters=8 noise=0.0625. show writes the measures as JSON with json=FILE.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <stdexcept>
#include <utility>

#include "rows.h"
#include "trireme/adapt/open_model.h"
#include "trireme/train/inference.h"

namespace {

using Words = std::map<std::string, std::string>;
constexpr int kBlocks = 24, kRows = 8;

// Rows, drawn character by character. The prompts have codes from the prior too: an encoder that read only them would
// tell of rows that it has never seen.
std::vector<rows::Block> generate_blocks(trireme::generate::Alone& model, const rows::Shape& shape, bool shares) {
  std::vector<rows::Block> blocks;
  for (int b = 0; b < kBlocks; ++b)
    blocks.push_back({.letter = char('A' + b), .rows = std::vector<std::string>(kRows)});
  for (int b = 0; b < kBlocks; ++b)
    for (int r = 0; r < kRows; ++r) {
      std::string& row = blocks[size_t(b)].rows[size_t(r)];
      model.generator().add(
          {.tokens = {blocks[size_t(b)].letter, '>'},
           .max_new_tokens = shape.length,
           .sampling = {.temperature = 1, .seed = shares ? 1u : 2u},
           .prompt = uint64_t(b),
           .sample = uint64_t(r),
           .codes = {.seed = shares ? uint64_t(b) : uint64_t(1000 + b * kRows + r), .of_prompt_too = true},
           .take = [&](int64_t id, double) {
             row += char(id);
             return true;
           }});
    }
  model.generator().run();
  return blocks;
}

rows::Regime generate_regime(const std::string& name, const std::string& folder, const rows::Shape& shape) {
  const auto model = trireme::train::open_alone(trireme::adapt::open_model({.model = folder}), {}, shape.length + 2);
  rows::Regime regime{
      .name = name, .shared = generate_blocks(*model, shape, true), .own = generate_blocks(*model, shape, false)};
  regime.of_shared = rows::measure(shape, regime.shared);
  regime.of_own = rows::measure(shape, regime.own);
  return regime;
}

void save(const std::string& path, const std::string& text) {
  std::ofstream out(path);
  out << text;
  out.close();
  if (!out) throw std::runtime_error("cannot write " + path);
}

std::string as_json(const std::vector<rows::Regime>& regimes) {
  std::string text = "[";
  for (const rows::Regime& regime : regimes) {
    const rows::Measures &shared = regime.of_shared, &own = regime.of_own;
    char line[512];
    std::snprintf(line, sizeof line,
                  "%s\n {\"name\": \"%s\", \"same_place\": %.4f, \"same_place_own\": %.4f, \"noise_repeats\": %.4f, "
                  "\"noise_repeats_own\": %.4f, \"noise\": %.4f, \"right\": %.4f}",
                  text.size() > 1 ? "," : "", regime.name.c_str(), shared.same_place, own.same_place,
                  shared.noise_repeats, own.noise_repeats, own.noise, own.right);
    text += line;
  }
  return text + "\n]\n";
}

void write_rows(const rows::Shape& shape, const std::string& path, const Words& words) {
  const auto word = [&](const char* name, const char* otherwise) {
    return words.contains(name) ? words.at(name) : std::string(otherwise);
  };
  std::mt19937_64 random(std::stoull(word("seed", "1")));
  std::string text;
  for (long count = std::stol(word("count", "20000")); count > 0; --count)
    text += "{\"text\": \"" + rows::draw(shape, random) + "\"}\n";
  save(path, text);
}

}  // namespace

int main(int argc, char** argv) try {
  rows::Shape shape;
  Words words;
  std::vector<std::pair<std::string, std::string>> models;  // name, folder
  std::string file;
  for (int i = 2; i < argc; ++i) {
    const std::string given = argv[i];
    const size_t at = given.find('=');
    const std::string name = given.substr(0, at), value = at == std::string::npos ? "" : given.substr(at + 1);
    if (name == "length")
      shape.length = std::stoi(value);
    else if (name == "letters")
      shape.letters = std::stoi(value);
    else if (name == "noise")
      shape.noise = std::stod(value);
    else if (at == std::string::npos)
      file = given;
    else if (name == "count" || name == "seed" || name == "svg" || name == "json")
      words[name] = value;
    else
      models.emplace_back(name, value);
  }
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "write" && !file.empty()) {
    write_rows(shape, file, words);
    return 0;
  }
  if (what != "show" || models.empty()) throw std::runtime_error("rows write FILE.jsonl, or rows show NAME=FOLDER...");
  at::set_num_threads(1);
  std::vector<rows::Regime> regimes;
  for (const auto& [name, folder] : models) regimes.push_back(generate_regime(name, folder, shape));
  std::fputs(rows::as_text(regimes, 4).c_str(), stdout);
  if (words.contains("svg")) save(words["svg"], rows::as_svg(shape, regimes, kRows));
  if (words.contains("json")) save(words["json"], as_json(regimes));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
