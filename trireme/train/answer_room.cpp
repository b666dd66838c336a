#include "trireme/train/answer_room.h"

#include <algorithm>

#include "trireme/train/rollout.h"

namespace trireme::train {

generate::Room room_for_answers(const GrpoSettings& s) {
  const int64_t pages = (most_places(s) + ops::kAttentionPage - 1) / ops::kAttentionPage,
                texts = std::min(s.rollout_batch_size, s.batch_size * std::max(s.num_generations, s.eval_samples));
  return {.texts = texts, .tokens = std::max<int64_t>(512, texts), .cache_tokens = texts * pages * ops::kAttentionPage};
}

}  // namespace trireme::train
