// SPDX-License-Identifier: Apache-2.0
// frt/ops/checks/patch_embed.hpp - the checks of frt/ops/patch_embed.h. Header-only.  [setup]
#pragma once

#include <frt/ops/patch_embed.h>
#include <frt/checks.hpp>
#include <frt/ops/checks/dense.hpp>
#include <frt/ops/checks/weight.hpp>

#include <cstdint>
#include <span>

namespace frt {

inline void check_pack_views(const Checks& check, const frt_pack_views_args& args) {
  check.positive("views", args.views);
  check.range("slots", args.slots, 1, args.views);
  check.positive("rows_per_view", args.rows_per_view);
  check.positive("branches", args.branches);
  check.at_least("text_rows", args.text_rows, 0);
  check.require(int64_t{args.slots} * args.rows_per_view + args.text_rows <= INT32_MAX, "text_rows",
                "with slots * rows_per_view is 2^31 or more");
  check.array("mask", args.mask, {args.views});
  check.array("text_length", args.text_length, {args.branches});
  check.array("view", args.view, {args.slots});
  check.array("view_rows", args.view_rows, {args.slots});
  check.array("image_rows", args.image_rows, {1});
  check.array("length", args.length, {args.branches});
}

namespace detail {

// The rows of x, of checked sizes.
inline int64_t patch_rows(const frt_patches_args& args) {
  return bounded_product({args.slots, args.height / args.patch, args.width / args.patch});
}

}  // namespace detail

inline void check_patches(const Checks& check, const frt_patches_args& args) {
  check.dtype("pixel_dtype", args.pixel_dtype, {FRT_DTYPE_U8, FRT_DTYPE_F32});
  check.dtype("dtype", args.dtype);
  check.positive("slots", args.slots);
  check.positive("views", args.views);
  check.positive("height", args.height);
  check.positive("width", args.width);
  check.positive("channels", args.channels);
  check.positive("patch", args.patch);
  check.multiple("height", args.height, args.patch, "patch");
  check.multiple("width", args.width, args.patch, "patch");
  check.total_rows("slots", detail::patch_rows(args), 1);
  check.array("view", args.view, {args.slots});
  check.array("pixels", args.pixels, args.pixel_dtype,
              {args.views, args.height, args.width, args.channels});
  check.matrix("x", args.x, args.dtype, detail::patch_rows(args),
               bounded_product({args.channels, args.patch, args.patch}), "x_stride", args.x_stride);
}

inline void check_patch_embed(const Checks& check, const frt_patch_embed_args& args,
                              std::span<const frt_weight_format> formats) {
  check_patches(check.in("patches"), args.patches);
  check_dense(check.in("product"), args.product, formats);
  check.require(args.product.x == args.patches.x, "product.x", "is not patches.x");
  check.require(args.product.x_dtype == args.patches.dtype, "product.x_dtype",
                "is not patches.dtype");
  check.equal("product.weight.cols", args.product.weight.cols, args.patches.x_stride);
  check.equal("product.rows", args.product.rows, detail::patch_rows(args.patches));
}

inline void check_embed_rows(const Checks& check, const frt_embed_rows_args& args,
                             std::span<const frt_weight_format> formats) {
  check.dtype("y_dtype", args.y_dtype);
  check.positive("branches", args.branches);
  check.positive("text_rows", args.text_rows);
  check.positive("y_rows", args.y_rows);
  check.array("first", args.first, {1});
  check.array("count", args.count, {args.branches});
  check.matrix("ids", args.ids, args.branches, args.text_rows, "ids_stride", args.ids_stride);
  check_weight(check.in("table"), args.table, formats);
  check.matrix("y", args.y, args.y_dtype, int64_t{args.branches} * args.y_rows, args.table.cols,
               "y_stride", args.y_stride);
}

}  // namespace frt
