#include "trireme/bench/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/base/text.h"

namespace trireme::bench {
namespace {

const Row* find(const std::vector<Row>& rows, const Row& like) {
  const auto found = std::find_if(rows.begin(), rows.end(),
                                  [&](const Row& row) { return row.name == like.name && row.shape == like.shape; });
  return found == rows.end() ? nullptr : &*found;
}

Change change_of(const Row& before, const Row& after) {
  Change c{.before = &before, .after = &after, .spread = std::max(before.spread, after.spread)};
  if (before.median_seconds > 0) c.ratio = after.median_seconds / before.median_seconds;
  if (std::abs(c.ratio - 1) <= c.spread) return c;
  c.kind = c.ratio < 1 ? Change::Kind::faster : Change::Kind::slower;
  return c;
}

std::string mark_of(const Change& c) {
  switch (c.kind) {
    case Change::Kind::faster:
      return "faster";
    case Change::Kind::slower:
      return "slower";
    default:
      return "";
  }
}

std::string about(const Report& r) {
  return fmt::format("  {}, {}, {}, trireme {}", r.date, r.processor, base::plural(r.cores, "core"), r.trireme);
}

}  // namespace

Comparison compare(const Report& before, const Report& after) {
  if (before.kind != after.kind)
    throw UsageError(fmt::format("a result of bench {} cannot be compared with one of bench {}; measure the same twice",
                                 before.kind, after.kind));
  Comparison c;
  for (const Row& row : before.rows)
    if (const Row* other = find(after.rows, row))
      c.changes.push_back(change_of(row, *other));
    else
      c.only_before.push_back(&row);
  for (const Row& row : after.rows)
    if (find(before.rows, row) == nullptr) c.only_after.push_back(&row);
  if (c.changes.empty())
    throw UsageError(fmt::format("the two results of bench {} have no row in common, by what was measured and its size",
                                 before.kind));
  return c;
}

std::string compare_text(const Report& before, const Report& after) {
  const Comparison c = compare(before, after);
  size_t name = 4, shape = 4;
  int64_t faster = 0, slower = 0;
  for (const Change& change : c.changes) {
    name = std::max(name, change.before->name.size());
    shape = std::max(shape, change.before->shape.size());
    faster += change.kind == Change::Kind::faster ? 1 : 0;
    slower += change.kind == Change::Kind::slower ? 1 : 0;
  }
  std::string text;
  // Results of older programs may not say where they are from.
  for (const auto& [when, report] : {std::pair("before", &before), std::pair("after ", &after)})
    if (!report->date.empty()) text += fmt::format("{} {}\n", when, about(*report));
  if (!text.empty()) text += "\n";
  text += fmt::format("{:<{}}  {:<{}}  {:>8}  {:>8}  {:>6}  {:>7}\n", "what", name, "size", shape, "before", "after",
                      "ratio", "spread");
  for (const Change& change : c.changes) {
    std::string line =
        fmt::format("{:<{}}  {:<{}}  {:>8}  {:>8}  {:>6.3f}  {:>5.1f} %  {}", change.before->name, name,
                    change.before->shape, shape, time_text(change.before->median_seconds),
                    time_text(change.after->median_seconds), change.ratio, change.spread * 100, mark_of(change));
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  const auto same = std::ssize(c.changes) - faster - slower;
  text += fmt::format("\n{} faster, {} slower, {} within their spread (ratio of times, after / before)\n", faster,
                      slower, same);
  for (const Row* row : c.only_before) text += fmt::format("only before: {} {}\n", row->name, row->shape);
  for (const Row* row : c.only_after) text += fmt::format("only after: {} {}\n", row->name, row->shape);
  return text;
}

int compare_files(const std::string& before, const std::string& after) {
  fmt::print("{}", compare_text(read_report(before), read_report(after)));
  return 0;
}

}  // namespace trireme::bench
