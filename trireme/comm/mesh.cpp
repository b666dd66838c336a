#include "trireme/comm/mesh.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::comm {
namespace {
constexpr std::string_view kAxisNames[kNumAxes] = {"pp", "replicate", "shard", "cp", "tp"};

std::string show(const std::array<int, kNumAxes>& sizes) {
  std::vector<std::string> parts;
  for (int a = 0; a < kNumAxes; ++a)
    parts.push_back(fmt::format("{} {}", kAxisNames[a], sizes[a] == kAutoSize ? "auto" : std::to_string(sizes[a])));
  return fmt::format("{}", fmt::join(parts, " x "));
}

[[noreturn]] void refuse(const std::string& text) { throw UsageError("[mesh] " + text); }

int64_t product(const std::array<int, kNumAxes>& sizes) {
  int64_t total = 1;
  for (int s : sizes)
    if (s != kAutoSize) total *= s;
  return total;
}

bool contains(std::initializer_list<Axis> axes, int axis) {
  return std::ranges::find(axes, static_cast<Axis>(axis)) != axes.end();
}

// How to make the product of the sizes equal to the world size: another `shard`, or another number of ranks.
std::string advice(std::array<int, kNumAxes> sizes, int world_size) {
  const int64_t total = product(sizes);
  sizes[static_cast<int>(Axis::shard)] = kAutoSize;
  const int64_t others = product(sizes);
  if (others > 0 && world_size % others == 0)
    return fmt::format("use --mesh.shard {}, or start {} ranks", world_size / others, total);
  return fmt::format("start {} ranks, or choose sizes that divide {}", total, world_size);
}
}  // namespace

std::string_view to_string(Axis axis) { return kAxisNames[static_cast<int>(axis)]; }

Axis parse_axis(std::string_view name) {
  for (int a = 0; a < kNumAxes; ++a)
    if (kAxisNames[a] == name) return static_cast<Axis>(a);
  if (name == "ep")
    refuse("axis 'ep' is reserved for experts and cannot be used yet; use pp, replicate, shard, cp, tp");
  refuse(fmt::format("there is no axis '{}'; use pp, replicate, shard, cp, tp", name));
}

ProcessMesh::ProcessMesh(const MeshSizes& sizes, int world_size)
    : sizes_{sizes.pp, sizes.replicate, sizes.shard, sizes.cp, sizes.tp}, world_size_(world_size) {
  if (world_size < 1) refuse(fmt::format("a world of {} ranks; start at least 1", world_size));
  for (int a = 0; a < kNumAxes; ++a)
    if (sizes_[a] < 0) refuse(fmt::format("{} is {}; use a size of 1 or more, or auto", kAxisNames[a], sizes_[a]));
  const auto num_auto = std::ranges::count(sizes_, kAutoSize);
  if (num_auto > 1) refuse(fmt::format("{}: more than one size is auto; fix all but one of them", show(sizes_)));
  const int64_t fixed = product(sizes_);
  if (num_auto == 1) {
    if (world_size % fixed != 0)
      refuse(
          fmt::format("{} = {} x auto: {} does not divide the world size {}; start a multiple of {} ranks, or choose "
                      "sizes whose product divides {}",
                      show(sizes_), fixed, fixed, world_size, fixed, world_size));
    *std::ranges::find(sizes_, kAutoSize) = static_cast<int>(world_size / fixed);
  } else if (fixed != world_size) {
    refuse(fmt::format("{} = {} is not the world size {}; {}", show(sizes_), fixed, world_size,
                       advice(sizes_, world_size)));
  }
}

int ProcessMesh::size(std::initializer_list<Axis> axes) const {
  int total = 1;
  for (int a = 0; a < kNumAxes; ++a)
    if (contains(axes, a)) total *= sizes_[a];
  return total;
}

ProcessMesh::Coordinates ProcessMesh::coordinates(int global_rank) const {
  check_invariant(global_rank >= 0 && global_rank < world_size_, "a global rank is below the world size");
  Coordinates c{};
  for (int a = kNumAxes - 1; a >= 0; --a) {
    c[a] = global_rank % sizes_[a];
    global_rank /= sizes_[a];
  }
  return c;
}

int ProcessMesh::global_rank(const Coordinates& coordinates) const {
  int rank = 0;
  for (int a = 0; a < kNumAxes; ++a) {
    check_invariant(coordinates[a] >= 0 && coordinates[a] < sizes_[a], "a coordinate is below its axis' size");
    rank = rank * sizes_[a] + coordinates[a];
  }
  return rank;
}

std::vector<int> ProcessMesh::group(int global_rank, std::initializer_list<Axis> axes) const {
  Coordinates first = coordinates(global_rank);
  for (const Axis axis : axes) first[static_cast<int>(axis)] = 0;
  std::vector<int> members{this->global_rank(first)};
  int stride = 1;  // between neighbours along the axis
  for (int a = kNumAxes - 1; a >= 0; stride *= sizes_[a--]) {
    if (!contains(axes, a)) continue;
    const size_t num_inside = members.size();
    for (size_t i = num_inside; i < num_inside * static_cast<size_t>(sizes_[a]); ++i)
      members.push_back(members[i - num_inside] + stride);
  }
  return members;
}

int ProcessMesh::group_rank(int global_rank, std::initializer_list<Axis> axes) const {
  const Coordinates mine = coordinates(global_rank);
  int rank = 0;
  for (int a = 0; a < kNumAxes; ++a)
    if (contains(axes, a)) rank = rank * sizes_[a] + mine[a];
  return rank;
}

std::vector<std::vector<int>> ProcessMesh::groups(std::initializer_list<Axis> axes) const {
  std::vector<std::vector<int>> all;
  for (int rank = 0; rank < world_size_; ++rank)
    if (group_rank(rank, axes) == 0) all.push_back(group(rank, axes));
  return all;
}

std::string ProcessMesh::describe() const {
  std::string text = fmt::format("mesh {} = {} ranks\n", show(sizes_), world_size_);
  for (int a = 0; a < kNumAxes; ++a) {
    if (sizes_[a] == 1) continue;
    const auto all = groups({static_cast<Axis>(a)});
    constexpr size_t kShown = 8;
    std::vector<std::string> parts;
    for (size_t g = 0; g < std::min(all.size(), kShown); ++g) {
      const auto& members = all[g];
      parts.push_back(members.size() <= kShown
                          ? fmt::format("{}", members)
                          : fmt::format("[{}, {}, ..., {}]", members[0], members[1], members.back()));
    }
    if (all.size() > kShown) parts.push_back(fmt::format("... {} groups", all.size()));
    text += fmt::format("  {:<10}{:>5}   {}\n", kAxisNames[a], sizes_[a], fmt::join(parts, " "));
  }
  return text;
}

}  // namespace trireme::comm
