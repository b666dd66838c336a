#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "trireme/schedule/render_blocks.h"

namespace trireme::schedule {
namespace {

constexpr double kAdjacent = 1.0 / 2000;  // of the length: shorter gaps are too small to see
constexpr int kPercentWidth = 9;          // "  100.0 %"

using Line = std::vector<std::string>;    // one entry a column: UTF-8 characters have several bytes

std::string text_of(const Line& line) {
  std::string out;
  for (const std::string& column : line) out += column;
  return out;
}

class TextPicture {
 public:
  TextPicture(const Timeline& timeline, const TimelineTextOptions& options)
      : timeline_(timeline), options_(options), length_(timeline.length()), idle_(idle_report(timeline)) {
    for (const Row& row : timeline.rows) {
      blocks_.push_back(compute_blocks(row, length_ * kAdjacent));
      margin_ = std::max(margin_, static_cast<int>(fmt::formatted_size("rank {} ", row.rank)));
    }
    columns_ = fitting_columns(std::max(60, options.width) - margin_ - kPercentWidth);
  }

  std::string draw() {
    std::string out = timeline_.title.empty() ? "" : timeline_.title + "\n";
    out += fmt::format("{:<{}}{:<{}}{:>{}}\n", "", margin_, "", columns_, "idle", kPercentWidth);
    const bool communication = static_cast<int>(timeline_.rows.size()) <= options_.communication_rows;
    for (size_t r = 0; r < timeline_.rows.size(); ++r) {
      out += fmt::format("{:<{}}{}{:>{}.1f} %\n", fmt::format("rank {}", timeline_.rows[r].rank), margin_,
                         text_of(computation(blocks_[r])), 100 * idle_.ranks[r].fraction_of_step, kPercentWidth - 2);
      if (communication) out += lanes(timeline_.rows[r]);
    }
    return out + barrier() + ruler() + legend();
  }

 private:
  // If all times are multiples of one unit of time, a width that is a multiple too shows them without rounding.
  int fitting_columns(int most) const {
    double best_score = 2;
    int best = most;
    for (int columns = most; columns >= most * 3 / 4; --columns) {
      double error = 0, count = 0;
      for (const auto& row : blocks_)
        for (const Block& b : row) {
          const double x = b.end / length_ * columns;
          error += std::abs(x - std::round(x));
          ++count;
        }
      const double score = (count > 0 ? error / count : 0) + 0.1 * (1 - double(columns) / most);
      if (score < best_score - 1e-9) best_score = score, best = columns;
    }
    return best;
  }

  int column(double time) const {
    return length_ > 0 ? std::clamp(static_cast<int>(std::lround(time / length_ * columns_)), 0, columns_) : 0;
  }

  Line computation(const std::vector<Block>& blocks) {
    Line line(columns_, options_.unicode ? "·" : ".");
    double busy = 0;
    for (const Block& b : blocks) busy += b.end - b.begin;
    if (busy / length_ * columns_ < 1.5 * double(blocks.size())) return majority(blocks, std::move(line));
    for (const Block& b : blocks) {
      const int begin = column(b.begin), end = column(b.end);
      std::string label = label_of(b);
      if (static_cast<int>(label.size()) > end - begin) label = label.substr(0, 1);  // the letter alone
      for (int c = begin; c < end; ++c) {
        const auto at = static_cast<size_t>(c - begin);
        line[c] = at < label.size() ? label.substr(at, 1) : options_.unicode ? "─" : "-";
      }
      if (end > begin) shown_[static_cast<int>(b.paint)] = true, odd_chunks_ = odd_chunks_ || b.chunk % 2 == 1;
    }
    return line;
  }

  // For several blocks in a column: shows the one that takes most of its time, or idle time.
  Line majority(const std::vector<Block>& blocks, Line line) {
    majority_ = true;
    const double width = length_ / columns_;
    std::vector<std::array<double, kNumPaints>> time(columns_, std::array<double, kNumPaints>{});
    for (const Block& b : blocks) {
      const int p = static_cast<int>(b.paint);
      shown_[p] = true;
      for (int c = static_cast<int>(b.begin / width); c < columns_ && c * width < b.end; ++c)
        time[c][p] += std::max(0.0, std::min(b.end, (c + 1) * width) - std::max(b.begin, c * width));
    }
    for (int c = 0; c < columns_; ++c) {
      const auto most = std::max_element(time[c].begin(), time[c].end());
      const double idle = width - std::accumulate(time[c].begin(), time[c].end(), 0.0);
      if (*most > idle) line[c] = std::string(1, style_of(static_cast<Paint>(most - time[c].begin())).letter);
    }
    return line;
  }

  // Empty when the rank does not communicate. The barrier has a line of its own.
  std::string lanes(const Row& row) {
    Line line(columns_, " ");
    bool any = false;
    for (const Paint lane : kLanes) {
      if (lane == Paint::norm) continue;
      for (const Block& b : lane_blocks(row, lane, 0)) {
        const std::string mark(1, style_of(lane).letter);
        const int begin = std::min(column(b.begin), columns_ - 1), end = std::max(begin + 1, column(b.end));
        for (int c = begin; c < end; ++c) {
          const bool taken = line[c] != " " && line[c] != mark;
          several_ = several_ || taken;
          line[c] = taken ? "+" : mark;
        }
        any = shown_[static_cast<int>(lane)] = true;
      }
    }
    return any ? finished(std::string(margin_, ' ') + text_of(line)) : "";
  }

  std::string barrier() const {
    const auto b = norm_barrier(timeline_);
    if (!b) return "";
    Line line(columns_, " ");
    const int begin = std::min(column(b->first), columns_ - 1), end = std::max(begin + 1, column(b->end));
    for (int c = begin; c < end; ++c) line[c] = options_.unicode ? "─" : "-";
    line[begin] = line[end - 1] = options_.unicode ? "│" : "|";
    return finished(fmt::format("{:<{}}{}", "norm", margin_, text_of(line)));
  }

  std::string ruler() const {
    const TimeUnit unit = time_unit(length_);
    std::string line(columns_, ' ');
    int free_from = 0;
    for (const double tick : time_ticks(length_, std::max(2, columns_ / 12))) {
      const std::string label = fmt::format("|{:g}", tick * unit.per_second);
      const int at = column(tick);
      if (at < free_from || at + static_cast<int>(label.size()) > columns_) continue;
      line.replace(static_cast<size_t>(at), label.size(), label);
      free_from = at + static_cast<int>(label.size()) + 1;
    }
    return finished(fmt::format("{:<{}}{}", unit.name, margin_, line));
  }

  std::string legend() const {
    std::vector<std::string> words;
    for (int p = 0; p < kNumPaints; ++p) {
      const PaintStyle& style = style_of(static_cast<Paint>(p));
      if (shown_[p]) words.push_back(fmt::format("{} {}", style.letter, style.about));
    }
    if (odd_chunks_) words.push_back("small letters: the rank's odd stages");
    words.push_back(options_.unicode ? "· idle" : ". idle");
    if (majority_) words.push_back("a column shows what takes most of it");
    if (several_) words.push_back("+ several at once");
    if (norm_barrier(timeline_)) words.push_back("norm: from the first rank there to the last");
    std::string out, line(margin_, ' ');
    for (const std::string& word : words) {
      if (static_cast<int>(line.size() + word.size()) > std::max(60, options_.width) + 1) {
        out += finished(line);
        line.assign(margin_, ' ');
      }
      line += word + "   ";
    }
    return out + finished(line);
  }

  static std::string finished(std::string line) {
    line.erase(line.find_last_not_of(' ') + 1);
    return line + "\n";
  }

  const Timeline& timeline_;
  TimelineTextOptions options_;
  double length_;
  IdleReport idle_;
  std::vector<std::vector<Block>> blocks_;
  int margin_ = 5, columns_ = 0;
  std::array<bool, kNumPaints> shown_{};
  bool several_ = false, odd_chunks_ = false, majority_ = false;
};

}  // namespace

std::string render_timeline_text(const Timeline& timeline, const TimelineTextOptions& options) {
  if (timeline.rows.empty() || timeline.length() <= 0) return "nothing takes any time\n";
  return TextPicture(timeline, options).draw();
}

}  // namespace trireme::schedule
