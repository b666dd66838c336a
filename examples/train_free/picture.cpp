// Rows as text and as SVG.
#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "rows.h"

namespace rows {
namespace {

constexpr int kCell = 6, kLine = 9, kMargin = 24, kTitle = 40, kGap = 26;

constexpr const char* kStyle = R"(<style>
text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: #5b6773 }
.paper { fill: #ffffff }
.name { font-size: 14px; font-weight: 600; fill: #1d252c }
.row { fill: #eef1f4 }
.noise { fill: #1d252c }
.letter { fill: #1f5fd0 }
.wrong { fill: #c9480b }
@media (prefers-color-scheme: dark) {
text { fill: #9ba7b3 }
.paper { fill: #14191e }
.name { fill: #e7ebee }
.row { fill: #222a31 }
.noise { fill: #e7ebee }
.letter { fill: #7fadff }
.wrong { fill: #ff9d5c }
}
</style>
)";

__attribute__((format(printf, 1, 2))) std::string line(const char* format, ...) {
  char text[512];
  va_list values;
  va_start(values, format);
  std::vsnprintf(text, sizeof text, format, values);
  va_end(values);
  return text;
}

const char* kind_of(char c, char letter) {
  if (c == '_') return nullptr;
  if (c == '!') return "noise";
  return c == letter ? "letter" : "wrong";
}

// A row as rectangles: one for its background, one for each stretch of equal characters that are no `_`.
std::string drawn(const Shape& shape, char letter, const std::string& row, int x, int y) {
  std::string text = line("<rect class=\"row\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", x, y,
                          shape.length * kCell, kLine - 2);
  for (size_t i = 0; i < row.size();) {
    size_t end = i;
    const char* kind = kind_of(row[i], letter);
    while (end < row.size() && kind_of(row[end], letter) == kind) ++end;
    if (kind != nullptr)
      text += line("<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", kind, x + int(i) * kCell, y,
                   int(end - i) * kCell - 1, kLine - 2);
    i = end;
  }
  return text;
}

// Models that have learned little write any bytes.
std::string printable(std::string row) {
  std::ranges::replace_if(row, [](char c) { return c < ' ' || c > '~'; }, '?');
  return row;
}

std::string said(const Measures& m) {
  return line("%.0f %% of pairs at the same place, %.0f %% of ! repeat, %.0f %% of rows right", 100 * m.same_place,
              100 * m.noise_repeats, 100 * m.right);
}

}  // namespace

std::string as_text(const std::vector<Regime>& regimes, int count) {
  std::string text;
  for (const Regime& regime : regimes)
    for (const bool shares : {true, false}) {
      const Block& block = (shares ? regime.shared : regime.own).front();
      text += line("%s, %s: %s\n", regime.name.c_str(), shares ? "one latent" : "a latent each",
                   said(shares ? regime.of_shared : regime.of_own).c_str());
      for (int r = 0; r < std::min(count, int(block.rows.size())); ++r)
        text += line("  %c>%s\n", block.letter, printable(block.rows[size_t(r)]).c_str());
    }
  return text;
}

std::string as_svg(const Shape& shape, const std::vector<Regime>& regimes, int count) {
  const int wide = shape.length * kCell, width = 2 * (kMargin + wide) + kMargin, tall = kTitle + count * kLine + kGap,
            height = int(regimes.size()) * tall + kMargin;
  std::string text = line(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
      "role=\"img\">\n<title>What the latent tells, by the free bits</title>\n",
      width, height, width, height);
  text += kStyle + line("<rect class=\"paper\" width=\"%d\" height=\"%d\"/>\n", width, height);
  for (size_t i = 0; i < regimes.size(); ++i) {
    const int top = int(i) * tall + kMargin;
    for (const bool shares : {true, false}) {
      const int x = shares ? kMargin : 2 * kMargin + wide;
      const Block& block = (shares ? regimes[i].shared : regimes[i].own).front();
      text += line("<text class=\"name\" x=\"%d\" y=\"%d\">%s, %s</text>\n", x, top + 12, regimes[i].name.c_str(),
                   shares ? "one latent for all rows" : "a latent for each row");
      text += line("<text x=\"%d\" y=\"%d\">%s</text>\n", x, top + 30,
                   said(shares ? regimes[i].of_shared : regimes[i].of_own).c_str());
      for (int r = 0; r < std::min(count, int(block.rows.size())); ++r)
        text += drawn(shape, block.letter, block.rows[size_t(r)], x, top + kTitle + r * kLine);
    }
  }
  return text + "</svg>\n";
}

}  // namespace rows
