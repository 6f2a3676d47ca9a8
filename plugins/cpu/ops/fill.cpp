// SPDX-License-Identifier: Apache-2.0
// frt.fill_uniform/1: reproducible values, a function of the seed and the index alone.
#include <frt/ops/checks/elementwise.hpp>

#include <algorithm>

#include "../device.hpp"
#include "formats.hpp"
#include "numbers.hpp"
#include "registry.hpp"

namespace frt::cpu {
namespace {

constexpr int64_t kPiece = 32768;  // values per task; even, so that no byte of F4 is shared

uint64_t splitmix64(uint64_t x) noexcept {
  uint64_t z = x + 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

template <class Write>
void fill(const frt_fill_uniform_args& args, int64_t first, int64_t end, Write&& write) noexcept {
  const float span = args.high - args.low;
  for (int64_t i = first; i < end; ++i) {
    const auto u = static_cast<float>(splitmix64(args.seed + static_cast<uint64_t>(i)) >> 40);
    write(i, args.low + span * (u * 0x1p-24f));
  }
}

void fill_piece(const frt_fill_uniform_args& args, int64_t first, int64_t end) noexcept {
  switch (args.dtype) {
    case FRT_DTYPE_F32:
      fill(args, first, end,
           [y = static_cast<float*>(args.y)](int64_t i, float value) { y[i] = value; });
      break;
    case FRT_DTYPE_BF16:
      fill(args, first, end, [y = static_cast<uint16_t*>(args.y)](int64_t i, float value) {
        y[i] = bf16_from_float(value);
      });
      break;
    case FRT_DTYPE_F16:
      fill(args, first, end, [y = static_cast<uint16_t*>(args.y)](int64_t i, float value) {
        y[i] = f16_from_float(value);
      });
      break;
    case FRT_DTYPE_F8_E4M3:
      fill(args, first, end, [y = static_cast<uint8_t*>(args.y)](int64_t i, float value) {
        y[i] = e4m3_from_float(value);
      });
      break;
    default:  // F4_E2M1
      fill(args, first, end, [y = static_cast<uint8_t*>(args.y)](int64_t i, float value) {
        const uint8_t code = e2m1_from_float(value);
        y[i / 2] = i % 2 == 0 ? code : static_cast<uint8_t>(y[i / 2] | code << 4);
      });
      break;
  }
}

std::unique_ptr<Node> prepare_fill_uniform(Device&, const frt_fill_uniform_args& args) {
  check_fill_uniform(Checks(FRT_OP_FILL_UNIFORM), args);
  return make_node([args](Pool& pool, std::byte*) noexcept {
    const auto count = static_cast<int64_t>(args.count);
    pool.run((count + kPiece - 1) / kPiece, [&](int64_t task, int) {
      const int64_t first = task * kPiece;
      fill_piece(args, first, std::min(count, first + kPiece));
    });
  });
}

}  // namespace

void register_fill(KernelList& list) {
  list.add<frt_fill_uniform_args>(
      FRT_OP_FILL_UNIFORM,
      {0, kFloatTypes | FRT_DTYPE_BIT(FRT_DTYPE_F16) | FRT_DTYPE_BIT(FRT_DTYPE_F8_E4M3) |
              FRT_DTYPE_BIT(FRT_DTYPE_F4_E2M1)},
      {}, prepare_fill_uniform);
}

}  // namespace frt::cpu
