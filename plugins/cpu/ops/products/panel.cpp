// SPDX-License-Identifier: Apache-2.0
// Panels: activations in the order in which the GEMV kernels meet the weights.
//
// Rows are padded with zeros to a multiple of kPanelBlock elements. Within a block of 128:
//   kFloat, kBf16  as they are
//   kBf16Fp8       each half: groups of 8: 0 2 4 6 1 3 5 7. A 512-bit register of 64 E4M3 bytes is
//                  made bf16 by the byte interleaves, which take the lower and upper 8 bytes of
//                  each 128 bits.
//   kBf16Fp4       elements 4i, then 4i + 1, 4i + 2, 4i + 3: the four nibbles of 32 words.
#include <cstring>

#include "../numbers.hpp"
#include "gemv.hpp"

namespace frt::cpu {
namespace {

constexpr int64_t kBlock = kPanelBlock;

void order_fp8(const uint16_t* from, uint16_t* to) noexcept {
  for (int64_t group = 0; group < kBlock / 8; ++group) {
    const int64_t place = group / 8 * 8 + group % 2 * 4 + group % 8 / 2;
    std::memcpy(to + place * 8, from + group * 8, 8 * sizeof(uint16_t));
  }
}

void order_fp4(const uint16_t* from, uint16_t* to) noexcept {
  for (int64_t i = 0; i < kBlock / 4; ++i) {
    for (int64_t nibble = 0; nibble < 4; ++nibble)
      to[nibble * kBlock / 4 + i] = from[4 * i + nibble];
  }
}

// Calls order(from, to) for each block; the last one is padded first.
template <class Order>
void fill_ordered(const uint16_t* x, int64_t cols, uint16_t* panel, Order order) noexcept {
  int64_t k = 0;
  for (; k + kBlock <= cols; k += kBlock) order(x + k, panel + k);
  if (k == cols) return;
  uint16_t rest[kBlock] = {};
  std::memcpy(rest, x + k, static_cast<std::size_t>(cols - k) * sizeof(uint16_t));
  order(rest, panel + k);
}

}  // namespace

int64_t panel_row_bytes(PanelKind kind, int64_t cols) noexcept {
  const int64_t padded = (cols + kBlock - 1) / kBlock * kBlock;
  return padded * (kind == PanelKind::kFloat ? 4 : 2);
}

void fill_panel_row(PanelKind kind, frt_dtype dtype, const void* x, int64_t cols,
                    void* panel) noexcept {
  switch (kind) {
    case PanelKind::kFloat: {
      auto* to = static_cast<float*>(panel);
      if (dtype == FRT_DTYPE_F32) {
        std::memcpy(to, x, static_cast<std::size_t>(cols) * sizeof(float));
      } else if (dtype == FRT_DTYPE_BF16) {
        const auto* from = static_cast<const uint16_t*>(x);
        for (int64_t k = 0; k < cols; ++k) to[k] = bf16_to_float(from[k]);
      } else {
        const auto* from = static_cast<const uint8_t*>(x);
        for (int64_t k = 0; k < cols; ++k) to[k] = e4m3_to_float(from[k]);
      }
      const int64_t padded = panel_row_bytes(kind, cols) / 4;
      for (int64_t k = cols; k < padded; ++k) to[k] = 0.0f;
      break;
    }
    case PanelKind::kBf16:
      fill_ordered(static_cast<const uint16_t*>(x), cols, static_cast<uint16_t*>(panel),
                   [](const uint16_t* from, uint16_t* to) noexcept {
                     std::memcpy(to, from, kBlock * sizeof(uint16_t));
                   });
      break;
    case PanelKind::kBf16Fp8:
      fill_ordered(static_cast<const uint16_t*>(x), cols, static_cast<uint16_t*>(panel), order_fp8);
      break;
    case PanelKind::kBf16Fp4:
      fill_ordered(static_cast<const uint16_t*>(x), cols, static_cast<uint16_t*>(panel), order_fp4);
      break;
  }
}

}  // namespace frt::cpu
