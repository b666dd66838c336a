// Accepts LitGPT's words for settings where Trireme has other words: a class with its module and arguments
// (`data: {class_path: litgpt.data.TextFiles, init_args: {train_data_path: F}}`), data.json_path, data.download_dir,
// data.prompt_style with its names of templates, data.mask_prompt, lora_r.
#pragma once

#include "trireme/config/given.h"

namespace trireme::dialects {

/// Rewrites LitGPT's words; a config::Dialect.
void litgpt(config::Given& given);

}  // namespace trireme::dialects
