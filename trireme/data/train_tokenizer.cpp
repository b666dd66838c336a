#include "trireme/data/train_tokenizer.h"

#include <algorithm>
#include <thread>

#include "trireme/data/ordered_workers.h"
#include "trireme/data/piece_counts.h"
#include "trireme/data/tokenizer_json.h"
#include "trireme/data/tokenizer_pipeline.h"

namespace trireme::data {

TrainTokenizerResult train_tokenizer(const TrainTokenizerOptions& options) {
  const NamedPattern& pattern = pattern_named(options.pattern);
  const PreTokenizer pre_tokenizer = pre_tokenizer_of(pattern);
  train_bpe({}, options.bpe);  // what it refuses, before the texts are read
  const TrainedBpe bytes = train_bpe({}, {.vocab_size = 257});
  const PipelineTokenizer untrained(parse_tokenizer_json(tokenizer_json(bytes, pattern), "untrained"));
  TextSource source(TextFiles::list(options.sources), options.text_field, untrained, options.block_bytes);

  PieceCounter counter(pre_tokenizer);
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  OrderedWorkers<TextBlock, int64_t> workers(
      options.bpe.threads > 0 ? options.bpe.threads : cores, [&] { return source.next_block(); },
      [&](const TextBlock& block) {
        PieceCounter::Part part(counter);
        source.read(block, [&](const TextPiece& piece) { part.add(piece.text); });
        return block.bytes;
      });
  TrainTokenizerResult result;
  while (const auto block_bytes = workers.get()) {
    result.source_bytes += *block_bytes;
    options.reading(static_cast<double>(result.source_bytes) / static_cast<double>(source.files().total_bytes()));
  }
  const auto pieces = counter.take();
  result.num_distinct_pieces = static_cast<int64_t>(pieces.size());
  for (const auto& [piece, count] : pieces) result.num_pieces += count;
  result.trained = train_bpe(pieces, options.bpe);
  return result;
}

}  // namespace trireme::data
