// The synthetic task of the Free Transformer (Fleuret 2025, section 4.1): rows of characters of which a latent can tell
// more or less.
//
//     K>!_________!_______!_______!____________!_______KKKKKKKK_________
//
// A row is 64 times `_`, of which 8 in turn, anywhere, are the letter that the prompt `K>` names. Then each character
// becomes `!` with probability 1/16. A decoder without a latent draws the place of the letters as it comes to it, and
// each `!` by itself. A latent may tell the place, or the place and the `!`, or all.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace rows {

struct Shape {
  int length = 64;  ///< characters behind the prompt
  int letters = 8;
  double noise = 1.0 / 16;
};

/// The prompt and the row.
std::string draw(const Shape& shape, std::mt19937_64& random);

/// How a row differs from those of the task.
struct Look {
  int place = 0;  ///< of the letters: the one that leaves the fewest wrong characters, the first of these
  int wrong = 0;  ///< characters that are neither `!` nor what belongs there
  int noise = 0;  ///< how many `!`
};
Look look_at(const Shape& shape, char letter, const std::string& row);

/// Rows of one letter that share their latent, or of which each has its own.
struct Block {
  char letter = 'A';
  std::vector<std::string> rows;
};

/// Means over blocks, each a share of 0 to 1.
struct Measures {
  double same_place = 0;  ///< of pairs of a block's rows: the letters begin at the same place
  double noise = 0;  ///< of characters: `!`
  double noise_repeats = 0;  ///< of pairs, where one has `!`: the other has it too
  double right = 0;  ///< of rows: no wrong character, and as much noise as rows have
};
Measures measure(const Shape& shape, const std::vector<Block>& blocks);

/// The rows that one model writes.
struct Regime {
  std::string name;  ///< "1/8 bit"
  std::vector<Block> shared, own;
  Measures of_shared, of_own;
};

/// Rows as text: for each regime some that share a latent, and some that do not.
std::string as_text(const std::vector<Regime>& regimes, int count);
/// The same as an SVG document without scripts or outside references, in the reader's light or dark colours.
std::string as_svg(const Shape& shape, const std::vector<Regime>& regimes, int count);

}  // namespace rows
