// SPDX-License-Identifier: Apache-2.0
// Rows kept with a slot (frt/ops/rows.h). Plain copies: one task per sequence, as the work is small
// beside any product.
#include <frt/ops/checks/rows.hpp>

#include <algorithm>
#include <cstring>

#include "registry.hpp"

namespace frt::cpu {
namespace {

template <class Args>
std::size_t row_bytes_of(const Args& args) {
  return static_cast<std::size_t>(args.width) * dtype_bits(args.dtype) / 8;
}

std::unique_ptr<Node> prepare_lag_rows(Device&, const frt_lag_rows_args& args) {
  check_lag_rows(Checks(FRT_OP_LAG_ROWS), args);
  const std::size_t row_bytes = row_bytes_of(args);
  return make_node([args, row_bytes](Pool& pool, std::byte*) noexcept {
    pool.run(args.sequences.count, [&](int64_t b, int) {
      const int64_t first = b * args.sequences.rows;
      const int32_t length = std::clamp(args.sequences.length[b], 0, args.sequences.rows);
      const int32_t position = args.sequences.position[b];
      const int32_t skipped = position > 0 ? 0 : 1;  // the first token has no row before it
      const int32_t pairs = length > 0 ? length - skipped : 0;
      args.position_out[b] = position > 0 ? position - 1 : 0;
      args.length_out[b] = pairs;
      const auto* x = static_cast<const std::byte*>(args.x);
      auto* y = static_cast<std::byte*>(args.y);
      for (int32_t q = 0; q < pairs; ++q) {
        const int32_t from = q + skipped;
        args.ids_out[first + q] = args.ids[first + from];
        const std::byte* row = from == 0
                                   ? static_cast<const std::byte*>(args.carry) +
                                         args.sequences.slot[b] * args.slot_stride
                                   : x + static_cast<std::size_t>(first + from - 1) * row_bytes;
        std::memcpy(y + static_cast<std::size_t>(first + q) * row_bytes, row, row_bytes);
      }
    });
  });
}

std::unique_ptr<Node> prepare_store_rows(Device&, const frt_store_rows_args& args) {
  check_store_rows(Checks(FRT_OP_STORE_ROWS), args);
  const std::size_t row_bytes = row_bytes_of(args);
  return make_node([args, row_bytes](Pool& pool, std::byte*) noexcept {
    pool.run(args.sequences.count, [&](int64_t b, int) {
      const int32_t length = std::clamp(args.sequences.length[b], 0, args.sequences.rows);
      if (length == 0) return;
      const int64_t row = b * args.sequences.rows + length - 1;
      std::memcpy(static_cast<std::byte*>(args.target) + args.sequences.slot[b] * args.slot_stride,
                  static_cast<const std::byte*>(args.x) + static_cast<std::size_t>(row) * row_bytes,
                  row_bytes);
    });
  });
}

}  // namespace

void register_rows(KernelList& list) {
  list.add<frt_lag_rows_args>(FRT_OP_LAG_ROWS, kFloatTypes, {}, prepare_lag_rows);
  list.add<frt_store_rows_args>(FRT_OP_STORE_ROWS, kFloatTypes, {}, prepare_store_rows);
}

}  // namespace frt::cpu
