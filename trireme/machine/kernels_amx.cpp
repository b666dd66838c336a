// The bfloat16 loop on tiles (AMX): one instruction multiplies 16 x 32 by 32 x 16 and adds to 16 x 16 float32 sums.
#include <immintrin.h>

#include "trireme/machine/kernels.h"

namespace trireme::machine {
namespace {

// There are 8 tiles; two hold the factors. An instruction starts every 16 cycles and takes 52: four chains would do.
constexpr int kChains = 6;
constexpr int64_t kRows = 16, kRowBytes = 64, kFlops = 2 * 16 * 16 * 32;

/// The configuration that the processor reads; palette 1 is the only one.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {kRowBytes, kRowBytes, kRowBytes, kRowBytes, kRowBytes, kRowBytes, kRowBytes, kRowBytes};
  uint8_t rows[16] = {kRows, kRows, kRows, kRows, kRows, kRows, kRows, kRows};
};
static_assert(sizeof(TileConfig) == 64);

struct alignas(64) Tile {
  uint16_t at[kRows * kRowBytes / 2];
};

double run(int64_t rounds) {
  const TileConfig config;
  Tile a, b;
  for (auto& x : a.at) x = 0x3f00;  // 0.5
  for (auto& x : b.at) x = 0x3e80;  // 0.25
  asm volatile("" : : "r"(&config), "r"(&a), "r"(&b) : "memory");  // GCC's intrinsics do not say that they read these
  _tile_loadconfig(&config);
  _tile_loadd(6, a.at, kRowBytes);
  _tile_loadd(7, b.at, kRowBytes);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  for (int64_t round = 0; round < rounds; ++round) {
    _tile_dpbf16ps(0, 6, 7);
    _tile_dpbf16ps(1, 6, 7);
    _tile_dpbf16ps(2, 6, 7);
    _tile_dpbf16ps(3, 6, 7);
    _tile_dpbf16ps(4, 6, 7);
    _tile_dpbf16ps(5, 6, 7);
  }
  alignas(64) float sums[kRows * kRowBytes / 4] = {};
  _tile_stored(0, sums, kRowBytes);
  _tile_release();  // threads that hold tiles are slower to switch
  return static_cast<double>(sums[0]);
}

}  // namespace

const RegisterLoop kTileLoop{run, kChains* kFlops};

}  // namespace trireme::machine
