// Trouble: whether a step's loss and gradient norm show that training has diverged, and what the user can try.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/engine/engine.h"
#include "trireme/train/session.h"

namespace trireme::train {

/// The loss of an untrained model, which guesses; infinity if the loss is no cross-entropy. Those of preferences and
/// rewards have no such bound: ipo with a beta of 0.01 begins at 2,500.
double loss_of_guessing(Learning task, int64_t vocab_size);

/// Why this step's loss and gradient norm mean that training has diverged; empty if they do not. Ten times the loss of
/// guessing counts as diverged. Where scaled gradients overflowed beside a finite loss, the scale was too high: the
/// norm then says nothing.
std::string trouble_of(const engine::StepResult& step, double guessing);

/// Whether a step that was skipped tells how its weights fare: its loss is a number, whatever its gradients are.
bool shows_weights(const engine::StepResult& step);

/// Whether training can continue after such a step.
bool is_finite(const engine::StepResult& step);

/// "step 5 is skipped: ...", and what became of the loss scale.
std::string describe_skipped(const Session& session, int64_t step);

/// "step 5: the loss is nan and the gradient norm inf. The newest good checkpoint is ...", as rank 0 sees it, and what
/// to try; or that a gradient overflows at the lowest loss scale. Every rank must call.
std::string describe_not_finite(Session& session, int64_t step, const engine::StepResult& result);

}  // namespace trireme::train
