// Accelerate's table in parts, one for each file: rows of its maps, and the strategies that they ask for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/dialects/reading.h"

namespace trireme::dialects::accelerate_parts {

std::vector<Row> fsdp_rows();       // accelerate_fsdp.cpp
std::vector<Row> deepspeed_rows();  // accelerate_deepspeed.cpp
std::vector<Row> mesh_rows();       // accelerate_mesh.cpp

void fsdp_strategy(Reading& reading);
void deepspeed_strategy(Reading& reading);
void megatron_strategy(Reading& reading);
/// The batch of a step from the micro-batches that `steps` counts, one by default.
void set_accumulation(Reading& reading, const std::string& steps);

/// The entry that asks for copies of whole weights, which its FSDP does not have; else null.
const config::Given* copies_of_whole_weights(const Reading& reading);

inline constexpr std::string_view kWeights = "each rank reads the weights that it owns";

inline std::string in(std::string_view head, std::string_view name) { return std::string(head) + std::string(name); }

}  // namespace trireme::dialects::accelerate_parts
