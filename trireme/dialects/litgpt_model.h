// LitGPT's model_config: a shape in its words (litgpt/config.py). Shapes of Llama's kind are taken.
#pragma once

#include <vector>

#include "trireme/dialects/reading.h"

namespace trireme::dialects {

std::vector<Row> litgpt_model_rows();
/// model_name, which counts unless a folder of weights or a model_config's sizes stand beside it.
void name_of_model(Reading& reading, const config::Given& entry);
void finish_litgpt_model(Reading& reading);

}  // namespace trireme::dialects
