/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/ops/patch_embed.h - from camera images and prompt tokens to the rows of an encoder. Views
 * that are masked off take no rows: valid ones are packed to the front, in their order, and the
 * prompt follows them at once.
 */
#ifndef FRT_OPS_PATCH_EMBED_H_
#define FRT_OPS_PATCH_EMBED_H_

#include <frt/kernels.h>
#include <frt/ops/dense.h>
#include <frt/ops/sequences.h>

FRT_EXTERN_C_BEGIN

/* Where things will lie. With n valid views (mask != 0, at most `slots` of them count):
 *   view[i] = index of the i-th valid view, -1 for i >= n;  view_rows[i] = rows_per_view or 0;
 *   image_rows = n * rows_per_view;
 *   length[w] = image_rows + the text length of branch w, clamped to 0 .. text_rows. */
#define FRT_OP_PACK_VIEWS "frt.pack_views/1"
typedef struct frt_pack_views_args {
  uint32_t struct_size;
  int32_t views;
  int32_t slots; /* that the graph has room for, 1 .. views */
  int32_t rows_per_view;
  int32_t branches;           /* of guidance */
  int32_t text_rows;          /* room for text, may be 0; with slots * rows_per_view < 2^31 */
  const int32_t* mask;        /* (views) */
  const int32_t* text_length; /* (branches) */
  int32_t* view;              /* (slots) */
  int32_t* view_rows;         /* (slots) */
  int32_t* image_rows;        /* (1) */
  int32_t* length;            /* (branches) */
} frt_pack_views_args;
FRT_ASSERT_LAYOUT(frt_pack_views_args, 72, length, 64);

/* Row (s, gy, gx) of x holds the patch at (gy, gx) of image view[s], in the order of a
 * convolution's weight: x[(s * grid_h + gy) * grid_w + gx, (c * patch + ky) * patch + kx] = scale *
 * pixel[view[s], gy * patch + ky, gx * patch + kx, c] + offset Columns from channels * patch^2 up
 * to x_stride are set to 0. Rows of slots with view -1 may be written with anything finite. */
#define FRT_OP_PATCHES "frt.patches/1"
typedef struct frt_patches_args {
  uint32_t struct_size;
  frt_dtype pixel_dtype; /* u8, f32 */
  frt_dtype dtype;       /* of x: f32, bf16 */
  int32_t slots;         /* slots * grid_h * grid_w < 2^31 */
  int32_t views;         /* images there are; an index outside counts as -1 */
  int32_t height, width, channels;
  int32_t patch; /* divides height and width */
  float scale, offset;
  uint32_t reserved;
  const int32_t* view; /* (slots) */
  const void* pixels;  /* (views, height, width, channels) */
  void* x;             /* (slots * grid_h * grid_w, x_stride) */
  int64_t x_stride;    /* elements, >= channels * patch^2: padded, so that rows are aligned */
} frt_patches_args;
FRT_ASSERT_LAYOUT(frt_patches_args, 80, x_stride, 72);

/* The embedding of patches: patches into product.x, then the product (its addend holds bias and
 * positions; weight.cols = patches.x_stride, zero columns behind; x_dtype = patches.dtype).
 * Composition: both. */
#define FRT_OP_PATCH_EMBED "frt.patch_embed/1"
typedef struct frt_patch_embed_args {
  uint32_t struct_size;
  uint32_t reserved;
  frt_patches_args patches;
  frt_dense_args product; /* rows = slots * grid_h * grid_w */
} frt_patch_embed_args;
FRT_ASSERT_LAYOUT(frt_patch_embed_args, 272, product, 88);

/* y[w * y_rows + *first + i, :] = scale * table[ids[w * ids_stride + i], :] for i < count[w], at
 * most text_rows of them, of each branch w; f32, one rounding. An id outside the table gives a row
 * of zeros. Rows beyond y_rows are not written. */
#define FRT_OP_EMBED_ROWS "frt.embed_rows/1"
typedef struct frt_embed_rows_args {
  uint32_t struct_size;
  frt_dtype y_dtype; /* f32, bf16 */
  int32_t branches;
  int32_t text_rows; /* at least 1 */
  int32_t y_rows;    /* room per branch */
  float scale;
  const int32_t* first; /* (1) device */
  const int32_t* count; /* (branches) device */
  const int32_t* ids;   /* (branches, ids_stride) device */
  int64_t ids_stride;   /* elements, >= text_rows */
  frt_weight table;     /* (vocabulary, width): f32, bf16 */
  void* y;              /* (branches * y_rows, y_stride) */
  int64_t y_stride;     /* elements, >= width */
} frt_embed_rows_args;
FRT_ASSERT_LAYOUT(frt_embed_rows_args, 136, y_stride, 128);

FRT_EXTERN_C_END

#endif /* FRT_OPS_PATCH_EMBED_H_ */
