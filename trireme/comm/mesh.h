// The process mesh: the world's ranks laid out on five axes, outer to inner
//     pp          pipeline stages
//     replicate   whole copies of a sharded model (the outer part of hybrid sharding)
//     shard       slices of parameters, gradients and optimizer state
//     cp          slices of the sequence
//     tp          slices of single matrices
// Neighbouring global ranks differ in the innermost axis first. So if ranks are numbered host by host, the axes that
// communicate most stay inside a host. A mesh is plain data and needs no process group.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::comm {

enum class Axis : uint8_t { pp, replicate, shard, cp, tp };
constexpr int kNumAxes = 5;

std::string_view to_string(Axis axis);

/// Errors    UsageError for other names; "ep" is refused as reserved for experts
Axis parse_axis(std::string_view name);

constexpr int kAutoSize = 0;  ///< "auto": the world size divided by the product of the other sizes

/// Sizes as asked for; at most one may be kAutoSize.
struct MeshSizes {
  int pp = 1, replicate = 1, shard = kAutoSize, cp = 1, tp = 1;
};

class ProcessMesh {
 public:
  using Coordinates = std::array<int, kNumAxes>;  ///< by Axis

  /// Errors    UsageError when the sizes do not multiply to `world_size`
  ProcessMesh(const MeshSizes& sizes, int world_size);

  int size(Axis axis) const { return sizes_[static_cast<int>(axis)]; }
  /// Ranks in each group along `axes` together.
  int size(std::initializer_list<Axis> axes) const;
  int world_size() const { return world_size_; }

  Coordinates coordinates(int global_rank) const;
  int coordinate(int global_rank, Axis axis) const { return coordinates(global_rank)[static_cast<int>(axis)]; }
  int global_rank(const Coordinates& coordinates) const;

  /// Global ranks that differ from `global_rank` along `axes` only, itself included, in ascending order. So outer axes
  /// vary slowest, whatever the order of `axes`.
  /// Cost      O(members)
  std::vector<int> group(int global_rank, std::initializer_list<Axis> axes) const;
  /// Index of `global_rank` in group(global_rank, axes): its rank in that group.
  int group_rank(int global_rank, std::initializer_list<Axis> axes) const;
  /// All groups along `axes`; each rank is in exactly one.
  std::vector<std::vector<int>> groups(std::initializer_list<Axis> axes) const;

  /// A table with one line for each axis of more than one rank: its groups.
  std::string describe() const;

 private:
  std::array<int, kNumAxes> sizes_{};
  int world_size_;
};

}  // namespace trireme::comm
