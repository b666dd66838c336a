#include "trireme/observe/loss_curve.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>

namespace trireme::observe {
namespace {

LossCurve falling(int64_t steps, int64_t val_every) {
  LossCurve curve{.title = "austen & <friends>", .unit = "nats per byte", .training = {}, .validation = {}};
  for (int64_t step = 1; step <= steps; ++step) {
    const double loss = 1.3 + 4.2 * std::exp(-8.0 * static_cast<double>(step) / static_cast<double>(steps));
    curve.training.push_back({step, loss + 0.1 * std::sin(static_cast<double>(step))});
    if (val_every > 0 && step % val_every == 0) curve.validation.push_back({step, loss + 0.05});
  }
  return curve;
}

// Whether the document is well-formed: one root, tags that nest, attributes in double quotes, known entities.
::testing::AssertionResult well_formed(std::string_view xml) {
  std::vector<std::string> open;
  int roots = 0;
  const auto sound_text = [](std::string_view text) {
    for (size_t at = 0; (at = text.find('&', at)) != std::string_view::npos; ++at) {
      const auto rest = text.substr(at);
      bool known = false;
      for (const char* entity : {"&amp;", "&lt;", "&gt;", "&quot;"}) known = known || rest.starts_with(entity);
      if (!known) return false;
    }
    return text.find('>') == std::string_view::npos || text.find('<') == std::string_view::npos;
  };
  while (!xml.empty()) {
    const size_t start = std::min(xml.find('<'), xml.size());
    const auto text = xml.substr(0, start);
    if (!sound_text(text)) return ::testing::AssertionFailure() << "bare & in text: " << text;
    if (open.empty() && !std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isspace(c); })) {
      return ::testing::AssertionFailure() << "text outside of the root: " << text;
    }
    if (start == xml.size()) break;
    xml.remove_prefix(start + 1);
    const size_t end = xml.find('>');
    if (end == std::string_view::npos) return ::testing::AssertionFailure() << "a tag without end";
    std::string_view tag = xml.substr(0, end);
    xml.remove_prefix(end + 1);
    if (tag.find('<') != std::string_view::npos) return ::testing::AssertionFailure() << "< inside tag " << tag;
    if (tag.starts_with('/')) {
      if (open.empty() || open.back() != tag.substr(1)) return ::testing::AssertionFailure() << "stray </" << tag;
      open.pop_back();
      continue;
    }
    const bool empty = tag.ends_with('/');
    if (empty) tag.remove_suffix(1);
    const size_t name_end = std::min(tag.find(' '), tag.size());
    std::string_view attributes = tag.substr(name_end);
    while (!attributes.empty()) {
      const size_t equals = attributes.find("=\"");
      const size_t close = equals == std::string_view::npos ? equals : attributes.find('"', equals + 2);
      if (close == std::string_view::npos || !attributes.starts_with(' ')) {
        return ::testing::AssertionFailure() << "attributes of " << tag;
      }
      if (!sound_text(attributes.substr(equals + 2, close - equals - 2))) {
        return ::testing::AssertionFailure() << "bare & in attributes of " << tag;
      }
      attributes.remove_prefix(close + 1);
    }
    if (open.empty() && ++roots > 1) return ::testing::AssertionFailure() << "a second root";
    if (!empty) open.emplace_back(tag.substr(0, name_end));
  }
  if (!open.empty() || roots != 1) return ::testing::AssertionFailure() << "unclosed tags or no root";
  return ::testing::AssertionSuccess();
}

size_t count(std::string_view text, std::string_view piece) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(piece, at)) != std::string_view::npos; at += piece.size()) ++found;
  return found;
}

size_t columns_of(std::string_view line) {
  return static_cast<size_t>(std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

TEST(LossCurve, TakesTheFiniteLossesOfTheMetrics) {
  const auto curve = loss_curve_of(
      {{.step = 2, .loss = 4}, {.step = 1, .loss = 5}, {.step = 3, .loss = NAN, .val_loss = 3.5}}, "t", "u");
  ASSERT_EQ(curve.training.size(), 2u);
  EXPECT_EQ(curve.training[0].step, 1);
  ASSERT_EQ(curve.validation.size(), 1u);
  EXPECT_EQ(curve.validation[0].loss, 3.5);
}

TEST(LossCurve, SmoothingKeepsAStraightLineAndCalmsNoise) {
  std::vector<LossPoint> line, noise;
  for (int64_t step = 0; step < 600; ++step) {
    line.push_back({step, 2.0 - 0.001 * static_cast<double>(step)});
    noise.push_back({step, step % 2 ? 1.1 : 0.9});
  }
  const auto smooth_line = smoothed(line), smooth_noise = smoothed(noise);
  for (size_t i = 0; i < 590; ++i) EXPECT_NEAR(smooth_line[i].loss, line[i].loss, 1e-9);
  for (size_t i = 20; i < 600; ++i) EXPECT_NEAR(smooth_noise[i].loss, 1.0, 0.011);
  EXPECT_TRUE(smoothed({}).empty());
}

TEST(LossCurve, SmoothingCountsStepsAndNotLines) {
  // A run that logged every step, and went on logging every tenth: the line it falls along shows no edge.
  std::vector<LossPoint> line;
  const auto at = [](int64_t step) { return 3.0 - 0.001 * static_cast<double>(step); };
  for (int64_t step = 1; step <= 600; ++step) line.push_back({step, at(step)});
  for (int64_t step = 610; step <= 1200; step += 10) line.push_back({step, at(step)});
  const auto smooth = smoothed(line);
  for (size_t i = 0; i + 3 < line.size(); ++i) EXPECT_NEAR(smooth[i].loss, line[i].loss, 1e-9) << line[i].step;
}

TEST(LossCurve, ShowsWhereTheRunWentOn) {
  auto curve =
      loss_curve_of({{.step = 1, .loss = 5}, {.step = 2, .loss = 4}, {.step = 3, .loss = 3, .resumed = 2}}, "t", "u");
  EXPECT_EQ(curve.resumes, (std::vector<int64_t>{2}));
  const std::string svg = loss_curve_svg(curve);
  EXPECT_TRUE(well_formed(svg));
  EXPECT_EQ(count(svg, "<line class=\"resume\""), 1u);
  EXPECT_NE(svg.find(">resumed<"), std::string::npos);
  const std::string text = loss_curve_text(curve, {.unicode = false});
  EXPECT_NE(text.find("^ resumed"), std::string::npos);
  EXPECT_NE(text.find("-^-"), std::string::npos);
  EXPECT_EQ(loss_curve_text(falling(10, 5), {.unicode = false}).find('^'), std::string::npos);
}

TEST(LossCurveSvg, IsWellFormedForAnyCurve) {
  for (const auto& curve :
       {falling(1000, 100), falling(1000, 0), falling(1, 1), falling(2, 1), falling(50'000, 1000), LossCurve{}}) {
    EXPECT_TRUE(well_formed(loss_curve_svg(curve))) << curve.training.size() << " steps";
  }
  EXPECT_FALSE(well_formed("<svg><g></svg>"));
  EXPECT_FALSE(well_formed("<svg>a & b</svg>"));
  EXPECT_FALSE(well_formed("<svg a=1></svg>"));
}

TEST(LossCurveSvg, ShowsTitleAxesLegendAndEachEvaluation) {
  const std::string svg = loss_curve_svg(falling(1000, 100));
  EXPECT_NE(svg.find("<title>austen &amp; &lt;friends&gt;</title>"), std::string::npos);
  EXPECT_NE(svg.find(">loss, nats per byte (log scale)<"), std::string::npos);
  EXPECT_NE(svg.find(">optimizer steps<"), std::string::npos);
  EXPECT_NE(svg.find(">held out<"), std::string::npos);
  EXPECT_NE(svg.find(">1,000<"), std::string::npos);
  EXPECT_NE(svg.find("prefers-color-scheme: dark"), std::string::npos);
  EXPECT_EQ(count(svg, "<circle class=\"validation\""), 10u + 1u);  // and the legend's
  EXPECT_EQ(count(svg, "<polyline"), 3u);
}

TEST(LossCurveSvg, StaysSmallForALongRunAndInsideItsFrame) {
  auto curve = falling(200'000, 1000);
  curve.training[100'000].loss = 30;  // a spike is shown, not cut
  const std::string svg = loss_curve_svg(curve);
  EXPECT_LT(svg.size(), 80'000u);
  size_t at = svg.find("class=\"raw\" points=\"") + 20;
  double highest = 1e9;
  for (const size_t end = svg.find('"', at); at < end;) {
    char* next = nullptr;
    const double x = std::strtod(svg.c_str() + at, &next);
    const double y = std::strtod(next + 1, &next);
    EXPECT_TRUE(x >= 66 && x <= 796 && y >= 62 && y <= 386) << x << "," << y;
    highest = std::min(highest, y);
    at = static_cast<size_t>(next - svg.c_str()) + 1;
  }
  EXPECT_LT(highest, 90);
}

TEST(LossAxis, HasRoundTicksInsideAndAtLeastThreeOfThem) {
  for (const double low : {1e-4, 0.02, 0.9, 1.3, 3.7}) {
    for (const double ratio : {1.01, 1.3, 2.0, 2.6, 4.2, 30.0, 1e4}) {
      LossCurve curve;
      curve.training = {{1, low * ratio}, {100, low}};
      const auto axis = detail::loss_axis(curve, 9);
      EXPECT_EQ(axis.logarithmic, ratio >= 2.5);
      EXPECT_GE(axis.ticks.size(), 3u) << low << " times " << ratio;
      EXPECT_LE(axis.ticks.size(), 10u);
      for (const double tick : axis.ticks) EXPECT_TRUE(axis.place(tick) >= 0 && axis.place(tick) <= 1);
      EXPECT_GT(axis.place(low), 0);
      EXPECT_LT(axis.place(low * ratio), 1);
    }
  }
}

TEST(LossAxis, TellsTinyTicksApart) {
  for (const double high : {3e-9, 4e-7, 2e-5}) {
    LossCurve curve;
    curve.training = {{1, high}, {100, -high / 2}};
    const auto axis = detail::loss_axis(curve, 9);
    std::set<std::string> labels;
    for (const double tick : axis.ticks) labels.insert(axis.label(tick));
    EXPECT_EQ(labels.size(), axis.ticks.size()) << high;
    EXPECT_EQ(labels.count("-0"), 0u);
    EXPECT_EQ(labels.count("0") + labels.count("0.000000") + labels.count("0.00000"), 1u) << high;
  }
}

TEST(LossAxis, LossesThatDifferInTheirLastBitsAreOneValue) {
  LossCurve curve;
  curve.training = {{1, 0.6931471805599453}, {2, 0.6931471805599451}};
  const auto axis = detail::loss_axis(curve, 9);
  EXPECT_GE(axis.ticks.size(), 3u);
  EXPECT_LE(axis.ticks.size(), 11u);
  EXPECT_NE(loss_curve_text(curve, {.unicode = false}).find("0.7"), std::string::npos);
  EXPECT_TRUE(well_formed(loss_curve_svg(curve)));
}

TEST(LossAxis, HasFewTicksForRangesOfAnySize) {
  for (const double range : {1e-15, 1e-12, 1e-9, 1e-8, 1e-6}) {
    for (const double high : {-2.5, 1.0, 1e6}) {
      LossCurve curve;
      curve.training = {{1, high}, {100, high - range * std::abs(high)}};
      EXPECT_LE(detail::loss_axis(curve, 9).ticks.size(), 11u) << high << " less " << range;
    }
  }
  // Losses of pairs that a model tells apart for certain come this near to 0.
  for (const double low : {0.0, 1e-320, 1e-304}) {
    for (const double high : {1e-303, 1e-298, 0.7, 1e300}) {
      LossCurve curve;
      curve.training = {{1, high}, {100, low}};
      EXPECT_LE(detail::loss_axis(curve, 9).ticks.size(), 11u) << low << " to " << high;
    }
  }
}

TEST(LossCurveText, FallsFromTheUpperLeftToTheLowerRightInsideItsWidth) {
  for (const bool unicode : {true, false}) {
    for (const int width : {44, 70, 120}) {
      const auto lines =
          lines_of(loss_curve_text(falling(1000, 100), {.width = width, .height = 12, .unicode = unicode}));
      ASSERT_EQ(lines.size(), 12u + 4u);
      for (const auto& line : lines) EXPECT_LE(columns_of(line), static_cast<size_t>(width)) << line;
      EXPECT_LT(columns_of(lines[2]), 12u) << lines[2];
      EXPECT_GT(columns_of(lines[11]), static_cast<size_t>(width) * 7 / 10) << lines[11];
    }
  }
}

TEST(LossCurveText, OfAStraightLineIsExactlyThis) {
  LossCurve curve{.title = "", .unit = "nats per byte", .training = {{0, 2.0}, {10, 1.0}}, .validation = {{10, 1.5}}};
  EXPECT_EQ(loss_curve_text(curve, {.width = 44, .height = 5, .unicode = false}),
            "  loss, nats per byte\n"
            "2 +*****\n"
            "  |     ********\n"
            "  |             *********            o\n"
            "  |                      ********\n"
            "1 +                              *****\n"
            "  +----------------------------------- steps\n"
            "   0                5               10\n"
            "   ** training 1.000  o held out 1.500\n");
}

TEST(LossCurveText, SaysSoWhenNothingIsLogged) { EXPECT_EQ(loss_curve_text({}), "no steps logged yet\n"); }

TEST(LossCurveText, SaysWhyLoggedStepsHaveNoLoss) {
  const auto unlearned = loss_curve_of({{.step = 1}, {.step = 2}}, "t", "u");
  EXPECT_EQ(loss_curve_text(unlearned), "no step learned from a token, so there is no loss to draw\n");
  EXPECT_NE(loss_curve_svg(unlearned).find(">no step learned from a token, so there is no loss to draw<"),
            std::string::npos);
  const auto diverged = loss_curve_of({{.step = 1, .loss = NAN}, {.step = 2}}, "t", "u");
  EXPECT_EQ(loss_curve_text(diverged), "no step has a finite loss, so there is none to draw\n");
}

TEST(LossCurveText, AsciiHoldsNoOtherCharacter) {
  const std::string text = loss_curve_text(falling(300, 30), {.unicode = false});
  EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
}

TEST(LossCurveText, TheLocaleDecidesAboutUnicode) {
  for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"}) ::unsetenv(variable);
  EXPECT_FALSE(terminal_shows_utf8());
  ::setenv("LANG", "C", 1);
  EXPECT_FALSE(terminal_shows_utf8());
  ::setenv("LANG", "en_US.UTF-8", 1);
  EXPECT_TRUE(terminal_shows_utf8());
  ::setenv("LC_ALL", "POSIX", 1);
  EXPECT_FALSE(terminal_shows_utf8());
  ::setenv("LC_ALL", "C.utf8", 1);
  EXPECT_TRUE(terminal_shows_utf8());
  ::unsetenv("LC_ALL");
}

}  // namespace
}  // namespace trireme::observe
