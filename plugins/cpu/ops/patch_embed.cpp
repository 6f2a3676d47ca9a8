// SPDX-License-Identifier: Apache-2.0
// From images and prompt ids to rows: frt.pack_views/1, frt.patches/1, frt.patch_embed/1,
// frt.embed_rows/1. All of it is moving and converting; rows are the unit of parallelism.
#include <frt/ops/checks/patch_embed.hpp>

#include <cstring>

#include "dense.hpp"
#include "numbers.hpp"
#include "products/weight.hpp"
#include "registry.hpp"

namespace frt::cpu {
namespace {

std::unique_ptr<Node> prepare_pack_views(Device&, const frt_pack_views_args& args) {
  check_pack_views(Checks(FRT_OP_PACK_VIEWS), args);
  return make_node([args](Pool&, std::byte*) noexcept {
    int32_t used = 0;
    for (int32_t v = 0; v < args.views && used < args.slots; ++v) {
      if (args.mask[v] != 0) args.view[used++] = v;
    }
    for (int32_t s = 0; s < args.slots; ++s) {
      if (s >= used) args.view[s] = -1;
      args.view_rows[s] = s < used ? args.rows_per_view : 0;
    }
    *args.image_rows = used * args.rows_per_view;
    for (int32_t w = 0; w < args.branches; ++w) {
      args.length[w] = *args.image_rows + std::clamp(args.text_length[w], 0, args.text_rows);
    }
  });
}

std::unique_ptr<Node> make_patches(const frt_patches_args& args) {
  return make_node([args](Pool& pool, std::byte*) noexcept {
    const int64_t across = args.width / args.patch;
    const int64_t cells = args.height / args.patch * across;
    pool.run(args.slots * cells, [&](int64_t row, int) {
      const int32_t view = args.view[row / cells];
      if (view < 0 || view >= args.views) return;
      const int64_t top = row % cells / across * args.patch;
      const int64_t left = row % across * args.patch;
      int64_t column = row * args.x_stride;
      for (int32_t c = 0; c < args.channels; ++c) {
        for (int64_t y = top; y < top + args.patch; ++y) {
          for (int64_t x = left; x < left + args.patch; ++x) {
            const int64_t at =
                ((view * static_cast<int64_t>(args.height) + y) * args.width + x) * args.channels +
                c;
            const float pixel =
                args.pixel_dtype == FRT_DTYPE_U8
                    ? static_cast<float>(static_cast<const uint8_t*>(args.pixels)[at])
                    : static_cast<const float*>(args.pixels)[at];
            store_float(args.dtype, args.x, column++, args.scale * pixel + args.offset);
          }
        }
      }
      for (; column < (row + 1) * args.x_stride; ++column) {
        store_float(args.dtype, args.x, column, 0.0f);
      }
    });
  });
}

std::unique_ptr<Node> prepare_patches(Device&, const frt_patches_args& args) {
  check_patches(Checks(FRT_OP_PATCHES), args);
  return make_patches(args);
}

std::unique_ptr<Node> prepare_patch_embed(Device& device, const frt_patch_embed_args& args) {
  check_patch_embed(Checks(FRT_OP_PATCH_EMBED), args, kWeightFormats);
  return make_sequence(make_patches(args.patches), make_dense(device, args.product));
}

std::unique_ptr<Node> prepare_embed_rows(Device&, const frt_embed_rows_args& args) {
  check_embed_rows(Checks(FRT_OP_EMBED_ROWS), args, kPlainFormats);
  return make_node([args](Pool& pool, std::byte*) noexcept {
    const frt_dtype stored = args.table.format.data;
    const int64_t width = args.table.cols;
    pool.run(static_cast<int64_t>(args.branches) * args.text_rows, [&](int64_t task, int) {
      const int64_t branch = task / args.text_rows;
      const int64_t i = task % args.text_rows;
      const int64_t row = *args.first + i;
      if (i >= args.count[branch] || row < 0 || row >= args.y_rows) return;
      const int32_t id = args.ids[branch * args.ids_stride + i];
      const bool known = id >= 0 && id < args.table.rows;
      const int64_t to = (branch * args.y_rows + row) * args.y_stride;
      for (int64_t j = 0; j < width; ++j) {
        const float value = known ? load_float(stored, args.table.data, id * width + j) : 0.0f;
        store_float(args.y_dtype, args.y, to + j, args.scale * value);
      }
    });
  });
}

}  // namespace

void register_patch_embed(KernelList& list) {
  list.add<frt_pack_views_args>(FRT_OP_PACK_VIEWS, 0, {}, prepare_pack_views);
  list.add<frt_patches_args>(FRT_OP_PATCHES, {0, kFloatTypes}, {}, prepare_patches);
  list.add<frt_patch_embed_args>(FRT_OP_PATCH_EMBED, kFloatTypes, kWeightFormats,
                                 prepare_patch_embed);
  list.add<frt_embed_rows_args>(FRT_OP_EMBED_ROWS, {0, kFloatTypes}, kPlainFormats,
                                prepare_embed_rows);
}

}  // namespace frt::cpu
