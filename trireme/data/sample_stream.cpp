#include "trireme/data/sample_stream.h"

#include "trireme/base/error.h"

namespace trireme::data {
namespace {

Sampler make_sampler(const std::vector<WeightedDataset>& sources, uint64_t seed) {
  std::vector<int64_t> sizes;
  std::vector<double> weights;
  for (const WeightedDataset& source : sources) {
    sizes.push_back(source.dataset->num_samples());
    weights.push_back(source.weight);
  }
  return {std::move(sizes), weights, seed};
}

}  // namespace

SampleStream::SampleStream(std::vector<WeightedDataset> sources, uint64_t seed)
    : sampler_(make_sampler(sources, seed)) {
  for (WeightedDataset& source : sources) {
    check_invariant(source.dataset->sequence() == sources.front().dataset->sequence(),
                    "the sources of a mixture cut samples of one length");
    datasets_.push_back(source.dataset);
  }
}

void SampleStream::sample(int64_t global_index, SampleView out) const {
  const Draw d = draw(global_index);
  datasets_[static_cast<size_t>(d.source)]->sample(d.epoch, d.index, out);
}

int64_t SampleStream::supervised_tokens(int64_t first, int64_t count) const {
  int64_t tokens = 0;
  for (int64_t g = first; g < first + count; ++g) {
    const Draw d = draw(g);
    tokens += datasets_[static_cast<size_t>(d.source)]->supervised_tokens(d.epoch, d.index);
  }
  return tokens;
}

std::vector<SampleOrigin> SampleStream::describe(int64_t global_index) const {
  const Draw d = draw(global_index);
  return datasets_[static_cast<size_t>(d.source)]->describe(d.epoch, d.index);
}

}  // namespace trireme::data
