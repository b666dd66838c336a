#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "trireme/schedule/render_blocks.h"

#include "trireme/base/text.h"

namespace trireme::schedule {
namespace {

constexpr double kLeft = 68, kRight = 76, kTop = 78, kBottom = 40;
constexpr double kNormRow = 16;
constexpr double kCharacter = 6.4;    // width of one at 11 px
constexpr double kThinnest = 0.25;    // px: spans closer than this are one block
constexpr size_t kMostInTitle = 12;   // spans that a title lists

// Blocks are light with dark letters in both themes; lanes have no letters, and colours of their own in each theme.
constexpr std::string_view kStyle = R"(<style>
text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: #5b6773 }
.paper { fill: #ffffff }
.title { font-size: 16px; font-weight: 600; fill: #1d252c }
.grid { stroke: #e6eaee; stroke-width: 1 }
.axis { stroke: #aab4be; stroke-width: 1 }
.label { font-size: 11px; fill: #10202c; text-anchor: middle; pointer-events: none }
.small { font-size: 9px }
.odd { fill: none; stroke: #10202c; stroke-width: 1.6; opacity: .55 }
.forward0 { fill: #8fbcf5 } .forward1 { fill: #b9d6fa }
.backward0 { fill: #86cf9f } .backward1 { fill: #b2e2c2 }
.input0 { fill: #6fcac4 } .input1 { fill: #a5e0dc }
.weight0 { fill: #f0c766 } .weight1 { fill: #f7dd9f }
.recompute0 { fill: #c3a9ec } .recompute1 { fill: #dac9f5 }
.optimizer0 { fill: #b7c0c9 } .load0 { fill: #d3d9de } .load1 { fill: #d3d9de }
.gather0 { fill: #0b7f86 } .reduce0 { fill: #c2410c } .send0 { fill: #41506b } .receive0 { fill: #8d99ad }
.fetch0 { fill: #7c5cbf } .evict0 { fill: #a98bd9 }
.norm0 { fill: #c0266c } .barrier { fill: #c0266c; fill-opacity: .75 } .normtext { fill: #c0266c }
@media (prefers-color-scheme: dark) {
text { fill: #9ba7b3 }
.paper { fill: #14191e }
.title { fill: #e7ebee }
.grid { stroke: #262e36 }
.axis { stroke: #55606b }
.label { fill: #10202c }
.gather0 { fill: #2fb5bd } .reduce0 { fill: #f0783c } .send0 { fill: #b3c0d8 } .receive0 { fill: #76829a }
.fetch0 { fill: #a98bf0 } .evict0 { fill: #7f66b8 }
.norm0 { fill: #f06ba6 } .barrier { fill: #f06ba6; fill-opacity: .75 } .normtext { fill: #f06ba6 }
}
</style>
)";

std::string bytes_text(int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  if (bytes < 1 << 20) return fmt::format("{:.1f} KiB", double(bytes) / 1024);
  return fmt::format("{:.1f} MiB", double(bytes) / (1 << 20));
}

// Heights: thick and labelled for few ranks, thin for many.
struct Heights {
  double compute, lane, gap;
  bool dense;  ///< names of every fourth rank, no labels, short titles
};
Heights heights_for(size_t ranks) {
  if (ranks <= 8) return {28, 6, 10, false};
  if (ranks <= 16) return {20, 4, 7, false};
  if (ranks <= 32) return {13, 2.5, 4, false};
  return {8, 1.5, 2.5, true};
}

class VectorPicture {
 public:
  explicit VectorPicture(const Timeline& timeline)
      : timeline_(timeline),
        length_(timeline.length()),
        unit_(time_unit(length_)),
        idle_(idle_report(timeline)),
        heights_(heights_for(timeline.rows.size())) {
    size_t most_blocks = 0;
    for (const Row& row : timeline.rows) {
      blocks_.push_back(compute_blocks(row, length_ / 2000));
      most_blocks = std::max(most_blocks, blocks_.back().size());
      for (const Paint lane : kLanes)
        if (!has(lane) && !lane_blocks(row, lane, 0).empty()) shown_[static_cast<int>(lane)] = true;
      for (const Block& b : blocks_.back()) {
        shown_[static_cast<int>(b.paint)] = true;
        odd_chunks_ = odd_chunks_ || b.chunk % 2 == 1;
      }
    }
    for (const Paint lane : kLanes)
      if (has(lane)) lanes_.push_back(lane);
    plot_width_ = std::clamp(24.0 * double(most_blocks), 820.0, 2200.0);
    pitch_ = heights_.compute + heights_.lane * double(lanes_.size()) + heights_.gap;
    plot_height_ = pitch_ * double(timeline.rows.size()) + (norm_barrier(timeline) ? kNormRow : 0);
  }

  std::string draw() {
    const double width = kLeft + plot_width_ + kRight, height = kTop + plot_height_ + kBottom;
    const std::string about = base::escape_xml(summary());
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:g} {1:g}\" width=\"{0:g}\" height=\"{1:g}\" "
        "role=\"img\">\n<title>{2}</title>\n<desc>{3}</desc>\n",
        width, height, base::escape_xml(title()), about);
    out_ += kStyle;
    out_ += fmt::format("<rect class=\"paper\" width=\"{:g}\" height=\"{:g}\"/>\n", width, height);
    out_ += fmt::format("<text class=\"title\" x=\"{}\" y=\"24\">{}</text>\n", kLeft, base::escape_xml(title()));
    out_ += fmt::format("<text x=\"{}\" y=\"43\">{}</text>\n", kLeft, about);
    legend();
    axis();
    barrier();
    for (size_t r = 0; r < timeline_.rows.size(); ++r) row(r);
    return std::move(out_) + "</svg>\n";
  }

 private:
  bool has(Paint paint) const { return shown_[static_cast<int>(paint)]; }
  double x(double time) const { return kLeft + (length_ > 0 ? time / length_ * plot_width_ : 0); }
  std::string title() const { return timeline_.title.empty() ? "One step" : timeline_.title; }
  std::string summary() const {
    return fmt::format("{} rank{}, {}, {:.1f} % idle", timeline_.rows.size(), timeline_.rows.size() == 1 ? "" : "s",
                       time_text(length_, unit_), 100 * idle_.fraction);
  }

  void legend() {
    double at = kLeft;
    for (int p = 0; p < kNumPaints; ++p) {
      if (!shown_[p]) continue;
      const PaintStyle& style = style_of(static_cast<Paint>(p));
      out_ += fmt::format(
          "<g transform=\"translate({:.1f} 60)\"><rect class=\"{}0\" y=\"-9\" width=\"12\" height=\"{}\"/>"
          "<text x=\"17\" y=\"2\">{}</text></g>\n",
          at, style.name, p < static_cast<int>(Paint::gather) ? 12 : 5, style.about);
      at += 34 + kCharacter * double(style.about.size());
    }
    if (odd_chunks_)
      out_ += fmt::format("<text x=\"{:.1f}\" y=\"62\">underlined, small letters: odd stages of a rank</text>\n", at);
  }

  void axis() {
    const double floor = kTop + plot_height_;
    for (const double tick : time_ticks(length_, static_cast<int>(plot_width_ / 100))) {
      out_ += fmt::format("<line class=\"grid\" x1=\"{0:.1f}\" y1=\"{1:g}\" x2=\"{0:.1f}\" y2=\"{2:g}\"/>\n", x(tick),
                          kTop - 6, floor);
      out_ += fmt::format("<text x=\"{:.1f}\" y=\"{:g}\" text-anchor=\"middle\">{:g}</text>\n", x(tick), floor + 17,
                          tick * unit_.per_second);
    }
    out_ += fmt::format("<line class=\"axis\" x1=\"{}\" y1=\"{:g}\" x2=\"{:g}\" y2=\"{:g}\"/>\n", kLeft, floor,
                        kLeft + plot_width_, floor);
    out_ += fmt::format("<text x=\"{:g}\" y=\"{:g}\" text-anchor=\"middle\">time, {}</text>\n", kLeft + plot_width_ / 2,
                        floor + 33, unit_.name);
    out_ += fmt::format("<text x=\"{:g}\" y=\"{:g}\" text-anchor=\"end\">idle</text>\n",
                        kLeft + plot_width_ + kRight - 14, kTop - 10);
  }

  // A row under the ranks: from the first rank that waits for the norm until all have it.
  void barrier() {
    const auto b = norm_barrier(timeline_);
    if (!b) return;
    const double top = kTop + plot_height_ - kNormRow;
    out_ += fmt::format("<text class=\"normtext\" x=\"{}\" y=\"{:g}\" text-anchor=\"end\">norm</text>\n", kLeft - 8,
                        top + 9);
    out_ += fmt::format(
        "<rect class=\"barrier\" x=\"{:.2f}\" y=\"{:g}\" width=\"{:.2f}\" height=\"9\" rx=\"2\"><title>loss and norm: "
        "rank {} is there at {}, rank {} at {}; all go on at {}</title></rect>\n",
        x(b->first), top, std::max(1.0, x(b->end) - x(b->first)), b->first_rank, time_text(b->first, unit_),
        b->last_rank, time_text(b->last, unit_), time_text(b->end, unit_));
  }

  void row(size_t r) {
    const double top = kTop + pitch_ * double(r);
    const std::string small = heights_.compute < 12 ? " class=\"small\"" : "";
    const double middle = top + heights_.compute / 2 + (small.empty() ? 4 : 3);
    out_ += fmt::format("<g id=\"rank{}\">\n", timeline_.rows[r].rank);
    if (!heights_.dense || r % 4 == 0)
      out_ += fmt::format("<text{} x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">rank {}</text>\n", small, kLeft - 8,
                          middle, timeline_.rows[r].rank);
    for (const Block& b : blocks_[r]) block(b, top, heights_.compute, true);
    double lane_top = top + heights_.compute + 1;
    for (const Paint lane : lanes_) {
      const std::vector<Block> blocks = lane_blocks(timeline_.rows[r], lane, kThinnest / plot_width_ * length_);
      const double height = heights_.lane - (heights_.lane > 3 ? 1.5 : 0.3);
      if (heights_.dense) {
        thin_lane(lane, blocks, lane_top, height);
      } else {
        for (const Block& b : blocks) block(b, lane_top, height, false);
      }
      lane_top += heights_.lane;
    }
    out_ += fmt::format("<text{} x=\"{:g}\" y=\"{:.1f}\" text-anchor=\"end\">{:.1f} %</text>\n</g>\n", small,
                        kLeft + plot_width_ + kRight - 14, middle, 100 * idle_.ranks[r].fraction_of_step);
  }

  // A whole lane as one path, so that a picture of many ranks stays small.
  void thin_lane(Paint lane, const std::vector<Block>& blocks, double top, double height) {
    if (blocks.empty()) return;
    size_t actions = 0;
    out_ += fmt::format("<path class=\"{}0\" d=\"", style_of(lane).name);
    for (const Block& b : blocks) {
      const double width = std::max(0.8, x(b.end) - x(b.begin));
      out_ += fmt::format("M{0:.1f} {1:.1f}h{2:.1f}v{3:.1f}h-{2:.1f}z", x(b.begin), top, width, height);
      actions += b.spans.size();
    }
    out_ += fmt::format("\"><title>{}: {} actions</title></path>\n", style_of(lane).about, actions);
  }

  void block(const Block& b, double top, double height, bool computes) {
    // A thin gap between neighbours, if there is room for it.
    const double begin = x(b.begin), full = x(b.end) - begin;
    const double width = computes ? full - (full > 4 ? 0.8 : full > 1.5 ? 0.3 : 0) : std::max(full, 0.8);
    const int shade = computes && b.micro_batch >= 0 ? b.micro_batch % 2 : 0;
    const bool plain = b.paint == Paint::optimizer || !computes;
    out_ += fmt::format(
        "<rect class=\"{}{}\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\"><title>{}"
        "</title></rect>\n",
        style_of(b.paint).name, plain ? 0 : shade, begin, top, width, height, base::escape_xml(title_of(b)));
    if (!computes) return;
    if (b.chunk % 2 == 1 && width > 1.5)
      out_ += fmt::format("<path class=\"odd\" d=\"M{:.2f} {:.1f}h{:.2f}\"/>\n", begin, top + height - 0.8, width);
    const std::string label = label_of(b);
    if (!heights_.dense && width >= kCharacter * double(label.size()) + 3)
      out_ += fmt::format("<text class=\"label{}\" x=\"{:.2f}\" y=\"{:.1f}\">{}</text>\n", height < 14 ? " small" : "",
                          begin + width / 2, top + height / 2 + (height < 14 ? 3 : 4), label);
  }

  std::string title_of(const Block& b) const {
    if (heights_.dense) return fmt::format("{} at {}", label_of(b), time_text(b.begin, unit_));
    std::string text = fmt::format("{} to {} ({})", time_text(b.begin, unit_), time_text(b.end, unit_),
                                   time_text(b.end - b.begin, unit_));
    int64_t bytes = 0;
    for (const TimelineSpan* s : b.spans) bytes += s->bytes;
    if (bytes > 0) text += ", " + bytes_text(bytes);
    for (size_t i = 0; i < b.spans.size() && i < kMostInTitle; ++i) {
      const TimelineSpan& s = *b.spans[i];
      text += fmt::format("\n#{} {} {}", s.action, s.label, time_text(s.seconds(), unit_));
      if (s.peer_rank >= 0) text += fmt::format(" {} rank {}", s.kind == ActionKind::send ? "to" : "from", s.peer_rank);
      if (s.bytes > 0) text += ", " + bytes_text(s.bytes);
    }
    if (b.spans.size() > kMostInTitle) text += fmt::format("\nand {} more", b.spans.size() - kMostInTitle);
    return text;
  }

  const Timeline& timeline_;
  double length_;
  TimeUnit unit_;
  IdleReport idle_;
  Heights heights_;
  std::vector<std::vector<Block>> blocks_;
  std::array<bool, kNumPaints> shown_{};
  bool odd_chunks_ = false;
  std::vector<Paint> lanes_;
  double plot_width_ = 0, plot_height_ = 0, pitch_ = 0;
  std::string out_;
};

}  // namespace

std::string render_timeline_svg(const Timeline& timeline) { return VectorPicture(timeline).draw(); }

}  // namespace trireme::schedule
