#include "trireme/settings/settings.h"

#include "trireme/settings/derived.h"

namespace trireme {

config::Table declare(Settings& s) {
  config::Table table({
      section(static_cast<train::RunSettings&>(s)),
      section(s.precision),
      section(static_cast<engine::AcceleratorSettings&>(s)),
      section(static_cast<launch::RankSettings&>(s)),
      section(static_cast<plan::StrategySettings&>(s)),
      section(s.model),
      quantize_section(s.model),
      section(s.model.free),
      section(s.data),
      section(s.train),
      section(s.eval),
      section(s.optimizer),
      section(s.lr_schedule),
      section(s.mesh),
      section(s.pipeline),
      section(s.recompute),
      section(s.wrap),
      section(s.lora),
      section(s.objective),
      section(s.dpo),
      section(s.grpo),
      section(s.reward),
      section(s.comm),
      section(s.schedule),
      section(s.offload),
      section(s.save),
      section(s.checkpoint),
      section(s.launch),
      section(s.generate),
      section(s.convert),
      section(s.evaluate),
      section(s.prepare),
      section(s.bench),
      section(s.doctor),
      section(s.engine),
      section(s.profile),
  });
  if (s.precision.format == model::NumberFormat::automatic)
    table.find("precision")->here = config::name_of(number_format(s));
  return table;
}

}  // namespace trireme
