// How the tensors of one convention of names and layouts are made of those of another: as data, so that a table of
// names needs no code of its own to move bytes, and so that tests can print and compare it.
//
// A target tensor is rows of source tensors one after the other ("row": everything behind the first dimension).
// That says fused matrices (LitGPT's q|k|v), cut ones, padded vocabularies (rows of zeros), and the rows that GGUF
// interleaves for rotary positions; `transpose` and `add` say the rest (GPT-2's Conv1D, Gemma's norms).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/checkpoint/tensor_source.h"

namespace trireme::checkpoint {

/// Rows [begin, end) of a source tensor.
struct RowPiece {
  std::string source;  ///< the tensor's name; empty for rows of zeros
  int64_t begin = 0;
  int64_t end = 0;
  /// Beyond 1: the rows are a matrix of `split` lines, taken column by column. Rotary rows of one head, halves to
  /// pairs (Hugging Face to GGUF): split = 2; pairs to halves: split = head_dim / 2.
  int64_t split = 1;
};

struct MappedTensor {
  SourceTensor target;           ///< its dtype is the one the sink will store
  std::vector<RowPiece> pieces;  ///< in the order of the target's rows
  bool transpose = false;        ///< the target is the transposed one source: one piece, all of its rows
  double add = 0;                ///< on every value, in float64 before the only rounding
};

/// A target that is one source as it is.
MappedTensor renamed(const SourceTensor& source, const std::string& name);

/// A source's tensors under another convention: a TensorSource again, so that converting is copying.
class MappedSource : public TensorSource {
 public:
  /// `source` must outlive this object.
  /// Errors    CheckpointError when a piece names no tensor of `source`, or rows that it does not have, or when the
  ///           pieces do not fill their target
  MappedSource(const TensorSource& source, std::vector<MappedTensor> map);

  const std::vector<SourceTensor>& tensors() const override { return tensors_; }
  /// Cost      for interleaved rows one read of the source each; for transposed ones one per row of the source
  void read(size_t tensor, int64_t begin, int64_t end, void* data, Dtype dtype) const override;

 private:
  struct Piece {
    size_t source = 0;  ///< kZeros for rows of zeros
    int64_t first = 0;  ///< element of the target
    int64_t last = 0;
    RowPiece rows;
  };
  struct Target {
    std::vector<Piece> pieces;
    int64_t row_elements = 1;
    int64_t source_row_elements = 1;
    bool transpose = false;
    double add = 0;
  };

  Target resolve(const MappedTensor& mapped) const;
  void read_plain(const Target& target, int64_t begin, int64_t end, std::byte* data, Dtype dtype) const;
  void read_piece(const Target& target, const Piece& piece, int64_t begin, int64_t end, std::byte* data,
                  Dtype dtype) const;
  void read_transposed(const Target& target, int64_t begin, int64_t end, std::byte* data, Dtype dtype) const;

  const TensorSource& source_;
  std::vector<SourceTensor> tensors_;
  std::vector<Target> targets_;
};

}  // namespace trireme::checkpoint
