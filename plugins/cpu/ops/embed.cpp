// SPDX-License-Identifier: Apache-2.0
// Moving rows: frt.embed/1, frt.select_tokens/1, frt.last_rows/1.
//
// All of it is copying; a row of another type is converted or dequantised on the way. Rows
// are split into tasks of about 16 KiB, so that a decode step costs no hand-over to other workers.
#include <frt/ops/checks/embed.hpp>

#include <algorithm>
#include <cstring>

#include "../device.hpp"
#include "active.hpp"
#include "numbers.hpp"
#include "products/dequantise.hpp"
#include "products/weight.hpp"
#include "registry.hpp"

namespace frt::cpu {
namespace {

// Runs function(row) for every row, several rows per task.
template <class Function>
void for_rows(Pool& pool, int64_t rows, int64_t row_bytes, Function&& function) noexcept {
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, row_bytes));
  pool.run((rows + grain - 1) / grain, [&](int64_t task, int) {
    const int64_t end = std::min(rows, (task + 1) * grain);
    for (int64_t row = task * grain; row < end; ++row) function(row);
  });
}

void copy_row(frt_dtype from, const void* x, frt_dtype to, void* y, int64_t width) noexcept {
  if (from == to) {
    std::memcpy(y, x, static_cast<std::size_t>(width * element_bytes(to)));
  } else if (from == FRT_DTYPE_BF16) {
    for (int64_t i = 0; i < width; ++i) {
      static_cast<float*>(y)[i] = bf16_to_float(static_cast<const uint16_t*>(x)[i]);
    }
  } else {
    for (int64_t i = 0; i < width; ++i) {
      static_cast<uint16_t*>(y)[i] = bf16_from_float(static_cast<const float*>(x)[i]);
    }
  }
}

// Row `row` of a quantised table, dequantised, as `to` (f32, bf16).
void dequantise_table_row(const Weight& table, int64_t row, frt_dtype to, void* y) noexcept {
  constexpr int64_t kChunk = 256;
  const float scale = row_scale(table, row);
  for (int64_t first = 0; first < table.cols; first += kChunk) {
    const int64_t count = std::min<int64_t>(kChunk, table.cols - first);
    float values[kChunk];
    dequantise_plain(table, row, first, count, values);
    for (int64_t i = 0; i < count; ++i) store_float(to, y, first + i, values[i] * scale);
  }
}

std::unique_ptr<Node> prepare_embed(Device&, const frt_embed_args& args) {
  check_embed(Checks(FRT_OP_EMBED), args, kWeightFormats);
  return make_node([args, table = Weight(args.table)](Pool& pool, std::byte*) noexcept {
    const frt_dtype stored = args.table.format.data;
    const int64_t width = args.table.cols;
    const bool plain = table.type == WeightType::kF32 || table.type == WeightType::kBf16;
    for_rows(pool, active_rows(args.rows, args.row_count), width * element_bytes(args.y_dtype),
             [&](int64_t row) {
               void* y = element(args.y_dtype, args.y, row * args.y_stride);
               const int32_t id = args.ids[row];
               if (id < 0 || id >= args.table.rows) {
                 std::memset(y, 0, static_cast<std::size_t>(width * element_bytes(args.y_dtype)));
               } else if (!plain) {
                 dequantise_table_row(table, id, args.y_dtype, y);
               } else {
                 copy_row(stored, element(stored, args.table.data, id * width), args.y_dtype, y,
                          width);
               }
             });
  });
}

std::unique_ptr<Node> prepare_select_tokens(Device&, const frt_select_tokens_args& args) {
  check_select_tokens(Checks(FRT_OP_SELECT_TOKENS), args);
  return make_node([args](Pool&, std::byte*) noexcept {
    const frt_sequences& s = args.sequences;
    for (int64_t b = 0; b < s.count; ++b) {
      const int64_t first = b * s.rows;
      const int32_t length = active_length(s, b);
      for (int64_t row = first; row < first + length; ++row) {
        const int32_t id = args.ids[row];
        args.ids_out[row] = id >= 0 ? id
                                    : *static_cast<const int32_t*>(byte_offset(
                                          args.pending, s.slot[b] * args.pending_stride));
      }
    }
  });
}

std::unique_ptr<Node> prepare_last_rows(Device&, const frt_last_rows_args& args) {
  check_last_rows(Checks(FRT_OP_LAST_ROWS), args);
  return make_node([args](Pool& pool, std::byte*) noexcept {
    const frt_sequences& s = args.sequences;
    for_rows(pool, s.count, args.width * element_bytes(args.dtype), [&](int64_t b) {
      const int32_t length = active_length(s, b);
      if (length == 0) return;
      const int64_t last = b * s.rows + length - 1;
      copy_row(args.dtype, element(args.dtype, args.x, last * args.x_stride), args.dtype,
               element(args.dtype, args.y, b * args.y_stride), args.width);
    });
  });
}

}  // namespace

void register_embed(KernelList& list) {
  list.add<frt_embed_args>(FRT_OP_EMBED, {0, kFloatTypes}, kWeightFormats, prepare_embed);
  list.add<frt_select_tokens_args>(FRT_OP_SELECT_TOKENS, 0, {}, prepare_select_tokens);
  list.add<frt_last_rows_args>(FRT_OP_LAST_ROWS, kFloatTypes, {}, prepare_last_rows);
}

}  // namespace frt::cpu
