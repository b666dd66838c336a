// LitGPT's model_config: a shape in its words (litgpt/config.py). Shapes of Llama's kind are taken.
#pragma once

#include <vector>

#include "trireme/dialects/reading.h"

namespace trireme::dialects {

std::vector<Row> litgpt_model_rows();
void finish_litgpt_model(Reading& reading);

}  // namespace trireme::dialects
