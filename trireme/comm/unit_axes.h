// The mesh axes that divide the computation of a unit (model/unit.h: embedding, block or head). Their ranks communicate
// inside the unit, in calls that the unit declares (model::TrafficRow). Code that needs one value for each such axis
// keeps an array by UnitAxis. So a new axis needs an enumerator and a row here, and its place in the mesh:
// docs/adding-an-axis.md.
#pragma once

#include <cstdint>
#include <iterator>

#include "trireme/base/enum_array.h"
#include "trireme/comm/mesh.h"

namespace trireme::comm {

enum class UnitAxis : uint8_t { tp, cp };

struct UnitAxisTraits {
  UnitAxis axis;
  Axis mesh;  ///< the axis of the process mesh
  const char* name;
  const char* adjective;  ///< what messages call its ranks
};

constexpr UnitAxisTraits kUnitAxes[] = {
    {UnitAxis::tp, Axis::tp, "tp", "tensor-parallel"},
    {UnitAxis::cp, Axis::cp, "cp", "context-parallel"},
};

template <typename T>
using PerUnitAxis = base::EnumArray<UnitAxis, std::size(kUnitAxes), T>;

class Communicator;
/// A unit's communicators; null where a rank is alone on the axis.
using UnitCommunicators = PerUnitAxis<Communicator*>;

}  // namespace trireme::comm
