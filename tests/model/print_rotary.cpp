// print_rotary THETA HEAD_DIM TYPE FACTOR ORIGINAL [KEY=VALUE...] POSITION...: the inverse frequencies, then cosine and
// sine of each position, one line each. What rotary_judge.py compares with transformers.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <string>

#include "trireme/model/rotary_frequencies.h"
#include "trireme/ops/ops.h"

namespace {

void print_row(const at::Tensor& row) {
  for (int64_t i = 0; i < row.numel(); ++i) fmt::print("{:.9g} ", row[i].item<float>());
  fmt::print("\n");
}

void set(trireme::model::RopeScaling& scaling, const std::string& key, double value) {
  if (key == "low_freq_factor") scaling.low_freq_factor = value;
  if (key == "high_freq_factor") scaling.high_freq_factor = value;
  if (key == "beta_fast") scaling.beta_fast = value;
  if (key == "beta_slow") scaling.beta_slow = value;
  if (key == "attention_factor") scaling.attention_factor = value;
  if (key == "mscale") scaling.mscale = value;
  if (key == "mscale_all_dim") scaling.mscale_all_dim = value;
  if (key == "truncate") scaling.truncate = value != 0;
}

// Of longrope: 1, 1 + step, 1 + 2 step, ...
std::vector<double> factors(double step, int64_t count) {
  std::vector<double> all;
  for (int64_t i = 0; i < count; ++i) all.push_back(1 + step * static_cast<double>(i));
  return all;
}

}  // namespace

int main(int count, char** words) {
  using trireme::model::RopeScaling;
  const std::string type = words[3];
  RopeScaling scaling{.type = type == "linear"     ? RopeScaling::Type::linear
                              : type == "llama3"   ? RopeScaling::Type::llama3
                              : type == "yarn"     ? RopeScaling::Type::yarn
                              : type == "dynamic"  ? RopeScaling::Type::dynamic
                              : type == "longrope" ? RopeScaling::Type::longrope
                                                   : RopeScaling::Type::none,
                      .factor = std::stod(words[4]),
                      .original_max_position_embeddings = std::stod(words[5])};
  int next = 6;
  int64_t sequence = 0;
  for (; next < count && std::string(words[next]).find('=') != std::string::npos; ++next) {
    const std::string word = words[next];
    const std::string key = word.substr(0, word.find('='));
    const double value = std::stod(word.substr(word.find('=') + 1));
    if (key == "sequence") sequence = static_cast<int64_t>(value);
    if (key == "short_step") scaling.short_factor = factors(value, std::stoll(words[2]) / 2);
    if (key == "long_step") scaling.long_factor = factors(value, std::stoll(words[2]) / 2);
    set(scaling, key, value);
  }
  const auto frequencies =
      trireme::model::rotary_frequencies(std::stod(words[1]), std::stoll(words[2]), scaling, sequence);
  print_row(at::tensor(frequencies, at::kDouble));
  for (; next < count; ++next) {
    const at::Tensor cosine = at::empty({1, static_cast<int64_t>(frequencies.size())}), sine = at::empty_like(cosine);
    trireme::ops::rotary_table(cosine, sine, frequencies, trireme::model::rotary_attention_factor(scaling),
                               std::stoll(words[next]));
    print_row(cosine[0]);
    print_row(sine[0]);
  }
}
