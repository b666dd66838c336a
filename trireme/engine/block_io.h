// BlockIo: reads and writes pieces of a file, several at a time: through io_uring, or with threads where the kernel has
// none or forbids it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

struct io_uring;

namespace trireme::engine {

struct Piece {
  char* memory;
  int64_t offset;  ///< in the file
  int64_t bytes;
};

/// What became of a piece: 0, an errno, or kCutShort for a file that ends inside it.
constexpr int kCutShort = -1;
struct PieceError {
  int64_t offset;
  int code;
};

class BlockIo {
 public:
  enum class Way { automatic, threads };

  /// `descriptor` must outlive it. At most `depth` pieces are under way at once.
  BlockIo(int descriptor, int depth, Way way = Way::automatic);
  ~BlockIo();

  /// Moves all pieces and returns the first error, if there is one. `begin` is called before a piece is written, `end`
  /// after it was read; both on any thread. After an error no further piece is begun.
  struct Hooks {
    std::function<void(const Piece&)> begin, end;
  };
  std::unique_ptr<PieceError> move(bool write, std::span<const Piece> pieces, const Hooks& hooks);

  /// For tests: what the system is to answer for the part of a piece that begins at `offset`. `code`: an errno instead
  /// of moving anything; `at_most`: bytes that are moved.
  struct Fault {
    int code = 0;
    int64_t at_most = INT64_MAX;
  };
  using Faults = std::function<Fault(bool write, int64_t offset, int64_t bytes)>;
  static void set_faults(Faults faults);

 private:
  struct Free {
    void operator()(io_uring* ring) const;
  };
  bool ring_works();
  int one(bool write, Piece piece) const;
  std::unique_ptr<PieceError> by_ring(bool write, std::span<const Piece> pieces, const Hooks& hooks);
  std::unique_ptr<PieceError> by_threads(bool write, std::span<const Piece> pieces, const Hooks& hooks);

  int descriptor_, depth_;
  std::unique_ptr<io_uring, Free> ring_;
};

}  // namespace trireme::engine
