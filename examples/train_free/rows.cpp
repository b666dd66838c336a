#include "rows.h"

#include <algorithm>
#include <cmath>

namespace rows {

std::string draw(const Shape& shape, std::mt19937_64& random) {
  const auto below = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(random); };
  const char letter = char('A' + below(26));
  std::string row(size_t(shape.length), '_');
  row.replace(size_t(below(shape.length - shape.letters + 1)), size_t(shape.letters), size_t(shape.letters), letter);
  for (char& c : row)
    if (std::bernoulli_distribution(shape.noise)(random)) c = '!';
  return std::string{letter, '>'} + row;
}

Look look_at(const Shape& shape, char letter, const std::string& row) {
  const int length = int(row.size());
  Look best{.wrong = length + 1};
  for (int place = 0; place + shape.letters <= length; ++place) {
    int wrong = 0;
    for (int i = 0; i < length; ++i)
      wrong += row[size_t(i)] != '!' && row[size_t(i)] != (i >= place && i < place + shape.letters ? letter : '_');
    if (wrong < best.wrong) best = {place, wrong};
  }
  for (const char c : row) best.noise += c == '!';
  return best;
}

Measures measure(const Shape& shape, const std::vector<Block>& blocks) {
  // With the task's noise, one row in 10^5 has more.
  const double most = shape.length * shape.noise + 4.5 * std::sqrt(shape.length * shape.noise * (1 - shape.noise));
  Measures m;
  int64_t rows = 0, characters = 0, pairs = 0, noise_in_pairs = 0;
  for (const Block& block : blocks) {
    std::vector<Look> looks;
    for (const std::string& row : block.rows) looks.push_back(look_at(shape, block.letter, row));
    for (size_t a = 0; a < looks.size(); ++a) {
      ++rows, characters += shape.length, m.noise += looks[a].noise;
      m.right += looks[a].wrong == 0 && looks[a].noise <= most;
      for (size_t b = 0; b < looks.size(); ++b) {
        if (a == b) continue;
        ++pairs, m.same_place += looks[a].place == looks[b].place;
        for (size_t i = 0; i < block.rows[a].size(); ++i)
          if (block.rows[a][i] == '!') ++noise_in_pairs, m.noise_repeats += block.rows[b][i] == '!';
      }
    }
  }
  pairs = std::max<int64_t>(1, pairs);
  m.right /= double(rows), m.noise /= double(characters), m.same_place /= double(pairs);
  m.noise_repeats /= double(std::max<int64_t>(1, noise_in_pairs));
  return m;
}

}  // namespace rows
