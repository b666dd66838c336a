// A tensor map: how the tensors of one format are made from those of another. It is data, so that a format needs only a
// table of names and no code to move bytes, and tests can print and compare it.
//
// A target tensor consists of rows of source tensors (a row is one index of the first dimension). That expresses fused
// matrices (LitGPT's q|k|v), split matrices, padded vocabularies (rows of zeros), and the rows that GGUF interleaves
// for rotary positions. `transpose` and `add` express the rest (GPT-2's Conv1D, Gemma's norms).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/formats/vocabulary.h"

namespace trireme::formats {

/// Rows [begin, end) of a source tensor.
struct RowPiece {
  std::string source;  ///< the tensor's name; empty for rows of zeros
  int64_t begin = 0;
  int64_t end = 0;
  /// If above 1, the rows are numbered as a matrix with `split` lines, and taken column by column. For the rotary rows
  /// of one head: from halves to pairs (Hugging Face to GGUF) split = 2; from pairs to halves split = head_dim / 2.
  int64_t split = 1;
};

struct MappedTensor {
  TensorSpec target;  ///< with the dtype that the sink stores
  std::vector<RowPiece> pieces;  ///< in the order of the target's rows
  bool transpose = false;  ///< the target is one whole source, transposed
  double add = 0;  ///< added to every value, in float64, before a single rounding
};

/// A target that is one whole source under another name.
MappedTensor renamed(const TensorSpec& source, const std::string& name);

/// Shows a source's tensors with the names and layouts of another format.
class MappedSource : public TensorSource {
 public:
  /// `source` must outlive this object.
  /// Errors    CheckpointError: a piece with a tensor or rows that `source` does not have; pieces that do not fill
  ///           their target
  MappedSource(const TensorSource& source, std::vector<MappedTensor> map);

  const std::vector<TensorSpec>& tensors() const override { return tensors_; }
  /// Cost      an interleaved row takes one read of the source; a transposed tensor takes one for each source row
  void read(size_t tensor, int64_t begin, int64_t end, void* data, Dtype dtype) const override;
  /// Of rows that are only put into another order.
  base::BlockFormat blocks_of(size_t tensor) const override;
  void read_blocks(size_t tensor, int64_t begin, int64_t end, std::byte* to) const override;

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

  /// What elements of a source are read as: numbers, or the bytes of their blocks.
  struct Reading {
    Dtype dtype = Dtype::f32;
    base::BlockFormat blocks = base::BlockFormat::none;
    int64_t bytes(int64_t elements) const;
    void read(const TensorSource& source, size_t tensor, int64_t begin, int64_t end, std::byte* data) const;
  };

  Target resolve(const MappedTensor& mapped) const;
  void read_plain(const Target& target, int64_t begin, int64_t end, std::byte* data, const Reading& as) const;
  void read_piece(const Target& target, const Piece& piece, int64_t begin, int64_t end, std::byte* data,
                  const Reading& as) const;
  void read_transposed(const Target& target, int64_t begin, int64_t end, std::byte* data, Dtype dtype) const;

  const TensorSource& source_;
  std::vector<TensorSpec> tensors_;
  std::vector<Target> targets_;
};

}  // namespace trireme::formats
