// SPDX-License-Identifier: Apache-2.0
// Images to image tokens: patches, the encoder's layers, the projection to the prefix's width.
// Valid views are packed to the front.
#include <cmath>

#include "recipe.hpp"

namespace frt::pi05 {

// Where things will lie; `length` gets the valid prefix rows of each branch.
void Engine::pack_views(const Recorder& recorder, const Variant& variant,
                        std::int32_t* length) const {
  frt_pack_views_args pack{};
  pack.views = i32(setup_.views);
  pack.slots = i32(variant.views);
  pack.rows_per_view = i32(dims_.cells());
  pack.branches = i32(variant.branches);
  pack.text_rows = i32(variant.prompt);
  pack.mask = ports_.view_mask.pointer<std::int32_t>();
  pack.text_length = ports_.prompt_length.pointer<std::int32_t>();
  pack.view = m_.view;
  pack.view_rows = m_.view_rows;
  pack.image_rows = m_.image_rows;
  pack.length = length;
  ops_.pack_views(recorder, pack);
}

void Engine::encode_images(const Recorder& recorder, const Variant& variant, void* tokens,
                           const Tap* tap) const {
  const frt_dtype a = precision_.activation;
  const frt_dtype r = precision_.residual;
  const std::int64_t width = dims_.vision_width;
  const std::int32_t rows = i32(variant.views * dims_.cells());

  frt_patch_embed_args embed{};
  frt_patches_args& patches = embed.patches;
  const bool bytes = setup_.image_dtype == FRT_DTYPE_U8;
  patches.pixel_dtype = setup_.image_dtype;
  patches.dtype = a;
  patches.slots = i32(variant.views);
  patches.views = i32(setup_.views);
  patches.height = patches.width = i32(dims_.image);
  patches.channels = 3;
  patches.patch = i32(dims_.patch);
  patches.scale = bytes ? 2.0f / 255.0f : 1.0f;
  patches.offset = bytes ? -1.0f : 0.0f;
  patches.view = m_.view;
  patches.pixels = ports_.images.pointer();
  patches.x = m_.patches;
  patches.x_stride = dims_.patch_columns();
  frt_dense_args& product = embed.product;
  product.x_dtype = a;
  product.y_dtype = r;
  product.rows = rows;
  product.row_count = m_.image_rows;
  product.x = m_.patches;
  product.x_stride = dims_.patch_columns();
  product.weight = weights_.patch;
  product.addend = weights_.patch_addend;
  product.addend_rows = i32(dims_.cells());
  product.y = m_.vision_x;
  product.y_stride = width;
  ops_.patch_embed(recorder, embed);
  show(tap, "vit_embed", 0, m_.vision_x, r, rows, width);

  frt_norm_dense_args products{};
  products.x_dtype = r;
  products.dtype = a;
  products.rows = rows;
  products.part_count = 1;
  products.row_count = m_.image_rows;
  products.x = m_.vision_x;
  products.normed = m_.vision_normed;

  frt_dense_attention_args attention{};
  attention.dtype = a;
  attention.scale = 1.0f / std::sqrt(static_cast<float>(dims_.vision_head()));
  attention.count = i32(variant.views);
  attention.rows = i32(dims_.cells());
  attention.heads = attention.kv_heads = i32(dims_.vision_heads);
  attention.head_dim = i32(dims_.vision_head());
  attention.length = m_.view_rows;
  attention.q = m_.vision_qkv;
  attention.k = rows_of(m_.vision_qkv, a, 1, width);
  attention.v = rows_of(m_.vision_qkv, a, 2, width);
  attention.q_stride = attention.kv_stride = 3 * width;
  attention.y = m_.vision_y;
  attention.y_stride = width;

  frt_dense_args out{};
  out.y_dtype = r;
  out.rows = rows;
  out.accumulate = 1;
  out.row_count = m_.image_rows;
  out.y = m_.vision_x;

  for (std::int64_t i = 0; i < dims_.vision_layers; ++i) {
    const VisionLayer& layer = weights_.vision[static_cast<std::size_t>(i)];
    frt_dense_part part{layer.qkv, layer.qkv_bias, FRT_ACTIVATION_NONE,
                        0,         m_.vision_qkv,  3 * width};
    products.norm = layer_norm(layer.norm1, layer.norm1_bias);
    products.normed_scale = layer.scales.qkv;
    products.parts = &part;
    show_normed(recorder, tap, {"vision", "qkv", i, 0}, norm_of(products, width));
    ops_.norm_dense(recorder, products);
    attention.y_scale = layer.scales.output;
    ops_.dense_attention(recorder, attention);
    out.x = m_.vision_y;
    out.x_scale = layer.scales.output;
    out.weight = layer.output;
    out.bias = layer.output_bias;
    show_input(tap, {"vision", "output", i, 0}, m_.vision_y, rows, width);
    dense(recorder, out);

    part = {layer.fc1,         layer.fc1_bias, FRT_ACTIVATION_GELU,
            layer.scales.down, m_.vision_h,    dims_.vision_mlp};
    products.norm = layer_norm(layer.norm2, layer.norm2_bias);
    products.normed_scale = layer.scales.hidden;
    show_normed(recorder, tap, {"vision", "hidden", i, 0}, norm_of(products, width));
    ops_.norm_dense(recorder, products);
    out.x = m_.vision_h;
    out.x_scale = layer.scales.down;
    out.weight = layer.fc2;
    out.bias = layer.fc2_bias;
    show_input(tap, {"vision", "down", i, 0}, m_.vision_h, rows, dims_.vision_mlp);
    dense(recorder, out);
    show(tap, "vit_layer", i, m_.vision_x, r, rows, width);
  }

  frt_row_norm_args norm{};
  norm.x_dtype = r;
  norm.y_dtype = a;
  norm.rows = rows;
  norm.width = i32(width);
  norm.row_count = m_.image_rows;
  norm.norm = layer_norm(weights_.vision_norm, weights_.vision_norm_bias);
  norm.x = m_.vision_x;
  norm.y = m_.vision_last;
  norm.x_stride = norm.y_stride = width;
  ops_.row_norm(recorder, norm);
  out.accumulate = 0;
  out.x = m_.vision_last;
  out.x_scale = 0;
  out.weight = weights_.projector;
  out.bias = weights_.projector_bias;
  out.y = tokens;
  dense(recorder, out);
  show(tap, "img_tokens", 0, tokens, r, rows, dims_.width);
}

}  // namespace frt::pi05
