#include "trireme/dialects/number_formats.h"

#include <fmt/format.h>

#include <string>

#include "trireme/dialects/reasons.h"

namespace trireme::dialects {

using config::Given;

std::string_view dtype_word(std::string_view text) {
  std::string name = lower(text);
  if (name.starts_with("torch.")) name.erase(0, 6);
  if (name == "fp32" || name == "float32" || name == "float") return "fp32";
  if (name == "bf16" || name == "bfloat16") return "bf16";
  return name == "fp16" || name == "float16" || name == "half" ? "fp16" : "";
}

std::string_view mixed_format(std::string_view dtype) {
  const std::string_view word = dtype_word(dtype);
  return word == "fp32" ? "32-true" : word == "bf16" ? "bf16-mixed" : word == "fp16" ? "16-mixed" : "";
}

void loggers_named(Reading& r, const Given& entry) {
  const std::string names = lower(entry.text);
  std::string ours;
  for (const char* name : {"tensorboard", "csv"})
    if (names.find(name) != std::string::npos || (names == "all" && name == std::string_view("tensorboard")))
      ours += ours.empty() ? std::string("[") + name : std::string(", ") + name;
  if (ours.empty()) return r.ignore(entry, kMetrics);
  r.set("train.loggers", ours + "]", entry);
}

void set_format(Reading& r, const Given& entry) {
  const std::string name = lower(entry.text);
  const std::string_view format = name == "no" || name == "false" ? "32-true" : mixed_format(name);
  if (!format.empty()) return r.set("precision", format, entry);
  if (name == "fp8") return r.set("precision", "fp8-mixed", entry);
  r.refuse(entry, fmt::format("there is no {} {}", entry.key, entry.text), "there are bf16, fp16, fp8 and no");
}

std::string_view compute_dtype(const Reading& r) {
  const std::string format = r.known("precision").value_or("auto");
  return format.starts_with("32")                                  ? "fp32"
         : format.starts_with("bf16") || format.starts_with("fp8") ? "bf16"
         : format.starts_with("16")                                ? "fp16"
                                                                   : "";
}

void set_gradient_dtype(Reading& r, std::string_view setting, const Given& entry) {
  const std::string_view dtype = dtype_word(entry.text), units = compute_dtype(r);
  if (dtype.empty())
    return r.refuse(entry, fmt::format("there is no dtype {}", entry.text), "there are fp32, bf16 and fp16");
  if (dtype == "fp32" && units != "fp32") return r.set(setting, "fp32", entry);
  if (dtype == units) return r.set(setting, "compute", entry);
  r.refuse(entry, fmt::format("{} {}: {} is fp32, or the dtype of weights in units", entry.key, entry.text, setting),
           units.empty() ? "say which precision computes" : fmt::format("units compute in {} here", units));
}

}  // namespace trireme::dialects
