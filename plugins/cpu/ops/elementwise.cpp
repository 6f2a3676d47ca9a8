// SPDX-License-Identifier: Apache-2.0
// Two rows to one: frt.silu_mul/1, frt.sigmoid_mul/1, frt.add/1, frt.gelu_mul/1.
//
// Work is cut into pieces of kPiece values, so that one wide row is spread over the workers as well
// as many narrow ones.
#include "elementwise.hpp"

#include <frt/ops/checks/elementwise.hpp>

#include <algorithm>

#include "../device.hpp"
#include "active.hpp"
#include "numbers.hpp"
#include "registry.hpp"

namespace frt::cpu {
namespace {

constexpr int64_t kPiece = 16384;

constexpr const char* name_of(Binary operation) {
  switch (operation) {
    case Binary::kSiluMul:
      return FRT_OP_SILU_MUL;
    case Binary::kSigmoidMul:
      return FRT_OP_SIGMOID_MUL;
    case Binary::kGeluMul:
      return FRT_OP_GELU_MUL;
    default:
      return FRT_OP_ADD;
  }
}

template <Binary kOperation>
std::unique_ptr<Node> prepare_binary(Device& device, const frt_binary_args& args) {
  check_binary(Checks(name_of(kOperation)), args);
  const bool reference = device.reference_numerics();
  return make_node([args, reference](Pool& pool, std::byte*) noexcept {
    const int64_t rows = active_rows(args.rows, args.row_count);
    const int64_t rows_per_task = std::max<int64_t>(1, kPiece / args.width);
    const int64_t pieces = (args.width + kPiece - 1) / kPiece;  // of a row
    const int64_t groups = (rows + rows_per_task - 1) / rows_per_task;
    pool.run(groups * pieces, [&](int64_t task, int) {
      const int64_t first = task / pieces * rows_per_task;
      const int64_t column = task % pieces * kPiece;
      const int64_t count = std::min(kPiece, args.width - column);
      for (int64_t row = first; row < std::min(rows, first + rows_per_task); ++row) {
        binary_row(reference, kOperation, count, args.dtype,
                   element(args.dtype, args.a, row * args.a_stride + column),
                   element(args.dtype, args.b, row * args.b_stride + column),
                   element(args.dtype, args.y, row * args.y_stride + column));
      }
    });
  });
}

}  // namespace

void register_elementwise(KernelList& list) {
  list.add<frt_binary_args>(FRT_OP_SILU_MUL, kFloatTypes, {}, prepare_binary<Binary::kSiluMul>);
  list.add<frt_binary_args>(FRT_OP_SIGMOID_MUL, kFloatTypes, {},
                            prepare_binary<Binary::kSigmoidMul>);
  list.add<frt_binary_args>(FRT_OP_ADD, kFloatTypes, {}, prepare_binary<Binary::kAdd>);
  list.add<frt_binary_args>(FRT_OP_GELU_MUL, kFloatTypes, {}, prepare_binary<Binary::kGeluMul>);
}

}  // namespace frt::cpu
