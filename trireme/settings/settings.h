// All settings of a run: the sections of all owners joined. A setting is declared beside the code that reads it, in its
// folder's settings.h and settings.cpp: value, default, unit, bounds, choices, help, and the rules inside the section.
// A name is LitGPT's if LitGPT has the flag. Names below `model` are those of Hugging Face's config.json. An empty
// optional means "not given". The declaration says what happens then.
#pragma once

#include "trireme/adapt/settings.h"
#include "trireme/bench/settings.h"
#include "trireme/checkpoint/settings.h"
#include "trireme/comm/settings.h"
#include "trireme/config/declaration.h"
#include "trireme/data/settings.h"
#include "trireme/doctor/settings.h"
#include "trireme/engine/settings.h"
#include "trireme/launch/settings.h"
#include "trireme/model/settings.h"
#include "trireme/model/settings_objective.h"
#include "trireme/optim/settings.h"
#include "trireme/optim/settings_lr.h"
#include "trireme/plan/settings.h"
#include "trireme/rewards/settings.h"
#include "trireme/schedule/settings.h"
#include "trireme/train/settings.h"
#include "trireme/train/settings_grpo.h"

namespace trireme {

/// The base classes hold the settings without a section: out_dir, accelerator, devices, strategy, ...
struct Settings : train::RunSettings, engine::AcceleratorSettings, launch::RankSettings, plan::StrategySettings {
  model::PrecisionSettings precision;
  model::ModelSettings model;
  data::DataSettings data;
  train::TrainSettings train;
  train::EvalSettings eval;
  optim::OptimizerSettings optimizer;
  optim::LrScheduleSettings lr_schedule;
  plan::MeshSettings mesh;
  schedule::PipelineSettings pipeline;
  schedule::RecomputeSettings recompute;
  model::WrapSettings wrap;
  adapt::LoraSettings lora;
  model::ObjectiveSettings objective;
  model::PreferenceSettings dpo;
  train::GrpoSettings grpo;
  rewards::RewardSettings reward;
  comm::CommSettings comm;
  schedule::ScheduleSettings schedule;
  schedule::OffloadSettings offload;
  checkpoint::SaveSettings save;
  checkpoint::CheckpointSettings checkpoint;
  launch::LaunchSettings launch;
  train::GenerateSettings generate;
  checkpoint::ConvertSettings convert;
  train::EvaluateSettings evaluate;
  data::PrepareSettings prepare;
  bench::BenchSettings bench;
  doctor::DoctorSettings doctor;
  engine::EngineSettings engine;
  engine::ProfileSettings profile;
  bool operator==(const Settings&) const = default;
};

/// All sections, in the order of help; rows point into `settings`, which must outlive the table.
config::Table declare(Settings& settings);

}  // namespace trireme
