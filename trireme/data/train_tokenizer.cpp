#include "trireme/data/train_tokenizer.h"

#include <algorithm>
#include <thread>

#include "trireme/data/ordered_workers.h"
#include "trireme/text/piece_counts.h"
#include "trireme/text/tokenizer_formats.h"
#include "trireme/text/tokenizer_pipeline.h"

namespace trireme::data {

TrainTokenizerResult train_tokenizer(const TrainTokenizerOptions& options) {
  const text::NamedPattern& pattern = text::pattern_named(options.pattern);
  const text::PreTokenizer pre_tokenizer = text::pre_tokenizer_of(pattern);
  text::train_bpe({}, options.bpe);  // refuses wrong options before the texts are read
  const text::TrainedBpe bytes = text::train_bpe({}, {.vocab_size = 257});
  const text::PipelineTokenizer untrained(
      text::parse_tokenizer_json(text::tokenizer_json(bytes, pattern), "untrained"));
  TextSource source(TextFiles::list(options.sources), options.text_field, untrained, options.block_bytes);

  text::PieceCounter counter(pre_tokenizer);
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  OrderedWorkers<TextBlock, int64_t> workers(
      options.bpe.threads > 0 ? options.bpe.threads : cores, [&] { return source.next_block(); },
      [&](const TextBlock& block) {
        text::PieceCounter::Part part(counter);
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
  result.trained = text::train_bpe(pieces, options.bpe);
  return result;
}

}  // namespace trireme::data
