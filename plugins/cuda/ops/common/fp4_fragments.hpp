// SPDX-License-Identifier: Apache-2.0
// fp4_fragments.hpp - the product of FP4 by FP4 as the lanes of a warp compute it, c += a b with
// (16, 64) by (64, 8), in plain arithmetic: what mma.sync.m16n8k64.kind::mxf4nvf4 with four ue4m3
// scales a row does, for code and for tests without the instruction (mma_fp4.cuh).
//
// Fragments for lane l = 4 g + t; a register has eight codes, the first in the lowest bits:
//   a[0] (g, 8t..8t+7)  a[1] (g+8, 8t..)  a[2] (g, 8t+32..)  a[3] (g+8, 8t+32..)  (row, k)
//   b[0] (8t..8t+7, g)  b[1] (8t+32.., g)                                          (k, column)
//   c[0], c[1] (g, 2t..2t+1)  c[2], c[3] (g+8, 2t..2t+1)                           (row, column)
// A scale register has those of k = 0, 16, 32 and 48 of one row or column, the first in the lowest
// bits. Of each four lanes the instruction reads a's scales in two, those of row g in lane 2 pair
// and those of row g+8 in lane 2 pair + 1, and b's of column g in lane `quarter`: so one register
// of a warp serves two products along the rows and four along the columns.
// (PTX ISA 9.0: "Matrix Fragments for mma.m16n8k64", "Block Scaling for mma.sync".)
#pragma once

#include <cstdint>

#include "fp4_numbers.hpp"

namespace frt::cuda {

// The registers of a lane, by number.
struct Fp4Operands {
  static constexpr int kA = 0, kB = 4, kScalesA = 6, kScalesB = 7, kCount = 8;
  uint32_t registers[kCount];
};

// c of lane `lane`. `read(number, lane)` is a register of another lane; all lanes call it with the
// same numbers in the same order. The products of 16 codes and their scales are exact, and added to
// c in the order of k, rounded each time.
template <class Read>
constexpr void multiply_fp4(int lane, int pair, int quarter, float (&c)[4], Read read) {
  const int g = lane / 4, t = lane % 4;
  uint32_t scales_a[2] = {}, scales_b[2] = {};
  for (int i = 0; i < 2; ++i) {
    scales_a[i] = read(Fp4Operands::kScalesA, 4 * g + 2 * pair + i);
    scales_b[i] = read(Fp4Operands::kScalesB, 4 * (2 * t + i) + quarter);
  }
  for (int group = 0; group < 4; ++group) {
    int sums[4] = {};
    for (int part = 0; part < 2; ++part) {  // eight of the 16 inputs
      const int source = group % 2 * 2 + part;
      uint32_t a[2] = {}, b[2] = {};
      for (int i = 0; i < 2; ++i) {
        a[i] = read(Fp4Operands::kA + group / 2 * 2 + i, 4 * g + source);
        b[i] = read(Fp4Operands::kB + group / 2, 4 * (2 * t + i) + source);
      }
      for (int k = 0; k < 8; ++k) {
        for (int i = 0; i < 4; ++i) {
          sums[i] += twice_e2m1(a[i / 2] >> 4 * k) * twice_e2m1(b[i % 2] >> 4 * k);
        }
      }
    }
    for (int i = 0; i < 4; ++i) {
      const float scale = from_ue4m3(scales_a[i / 2] >> 8 * group & 0x7Fu) *
                          from_ue4m3(scales_b[i % 2] >> 8 * group & 0x7Fu);
      c[i] += 0.25f * static_cast<float>(sums[i]) * scale;
    }
  }
}

}  // namespace frt::cuda
