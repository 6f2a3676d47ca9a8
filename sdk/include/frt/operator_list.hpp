// SPDX-License-Identifier: Apache-2.0
// frt/operator_list.hpp - the operators of frt/ops as lists: X(function, argument struct, name).
// Header-only.
#pragma once

#include <frt/ops/attention.h>
#include <frt/ops/checksum.h>
#include <frt/ops/dense.h>
#include <frt/ops/dense_attention.h>
#include <frt/ops/elementwise.h>
#include <frt/ops/embed.h>
#include <frt/ops/flow.h>
#include <frt/ops/flow_layers.h>
#include <frt/ops/gated_delta.h>
#include <frt/ops/linear.h>
#include <frt/ops/moe.h>
#include <frt/ops/norm.h>
#include <frt/ops/patch_embed.h>
#include <frt/ops/row_norm.h>
#include <frt/ops/rows.h>
#include <frt/ops/sample.h>

#define FRT_PRIMITIVE_OPERATORS(X)                                        \
  X(embed, frt_embed_args, FRT_OP_EMBED)                                  \
  X(select_tokens, frt_select_tokens_args, FRT_OP_SELECT_TOKENS)          \
  X(last_rows, frt_last_rows_args, FRT_OP_LAST_ROWS)                      \
  X(lag_rows, frt_lag_rows_args, FRT_OP_LAG_ROWS)                         \
  X(store_rows, frt_store_rows_args, FRT_OP_STORE_ROWS)                   \
  X(rms_norm, frt_rms_norm_args, FRT_OP_RMS_NORM)                         \
  X(add_rms_norm, frt_add_rms_norm_args, FRT_OP_ADD_RMS_NORM)             \
  X(gated_rms_norm, frt_gated_rms_norm_args, FRT_OP_GATED_RMS_NORM)       \
  X(linear, frt_linear_args, FRT_OP_LINEAR)                               \
  X(silu_mul, frt_binary_args, FRT_OP_SILU_MUL)                           \
  X(sigmoid_mul, frt_binary_args, FRT_OP_SIGMOID_MUL)                     \
  X(add, frt_binary_args, FRT_OP_ADD)                                     \
  X(convert, frt_convert_args, FRT_OP_CONVERT)                            \
  X(fill_uniform, frt_fill_uniform_args, FRT_OP_FILL_UNIFORM)             \
  X(checksum, frt_checksum_args, FRT_OP_CHECKSUM)                         \
  X(causal_conv, frt_causal_conv_args, FRT_OP_CAUSAL_CONV)                \
  X(gated_delta, frt_gated_delta_args, FRT_OP_GATED_DELTA)                \
  X(attention_append, frt_attention_append_args, FRT_OP_ATTENTION_APPEND) \
  X(attention, frt_attention_args, FRT_OP_ATTENTION)                      \
  X(moe_route, frt_moe_route_args, FRT_OP_MOE_ROUTE)                      \
  X(moe_experts, frt_moe_experts_args, FRT_OP_MOE_EXPERTS)                \
  X(moe_combine, frt_moe_combine_args, FRT_OP_MOE_COMBINE)                \
  X(row_norm, frt_row_norm_args, FRT_OP_ROW_NORM)                         \
  X(dense, frt_dense_args, FRT_OP_DENSE)                                  \
  X(gelu_mul, frt_binary_args, FRT_OP_GELU_MUL)                           \
  X(rope, frt_rope_args, FRT_OP_ROPE)                                     \
  X(dense_attention, frt_dense_attention_args, FRT_OP_DENSE_ATTENTION)    \
  X(pack_views, frt_pack_views_args, FRT_OP_PACK_VIEWS)                   \
  X(patches, frt_patches_args, FRT_OP_PATCHES)                            \
  X(embed_rows, frt_embed_rows_args, FRT_OP_EMBED_ROWS)                   \
  X(flow_start, frt_flow_start_args, FRT_OP_FLOW_START)                   \
  X(flow_input, frt_flow_input_args, FRT_OP_FLOW_INPUT)                   \
  X(flow_output, frt_flow_output_args, FRT_OP_FLOW_OUTPUT)                \
  X(flow_update, frt_flow_update_args, FRT_OP_FLOW_UPDATE)                \
  X(argmax, frt_argmax_args, FRT_OP_ARGMAX)                               \
  X(count_tokens, frt_count_tokens_args, FRT_OP_COUNT_TOKENS)             \
  X(sample, frt_sample_args, FRT_OP_SAMPLE)                               \
  X(accept_tokens, frt_accept_tokens_args, FRT_OP_ACCEPT_TOKENS)          \
  X(chain_tokens, frt_chain_tokens_args, FRT_OP_CHAIN_TOKENS)

// Those that frt/compose.hpp makes of others where a backend has no kernel for them.
#define FRT_FUSED_OPERATORS(X)                                                  \
  X(norm_linears, frt_norm_linears_args, FRT_OP_NORM_LINEARS)                   \
  X(norm_gate_up, frt_norm_gate_up_args, FRT_OP_NORM_GATE_UP)                   \
  X(gated_delta_block, frt_gated_delta_block_args, FRT_OP_GATED_DELTA_BLOCK)    \
  X(gated_delta_commit, frt_gated_delta_commit_args, FRT_OP_GATED_DELTA_COMMIT) \
  X(attention_block, frt_attention_block_args, FRT_OP_ATTENTION_BLOCK)          \
  X(moe_block, frt_moe_block_args, FRT_OP_MOE_BLOCK)                            \
  X(norm_dense, frt_norm_dense_args, FRT_OP_NORM_DENSE)                         \
  X(norm_geglu, frt_norm_geglu_args, FRT_OP_NORM_GEGLU)                         \
  X(norm_qkv, frt_norm_qkv_args, FRT_OP_NORM_QKV)                               \
  X(patch_embed, frt_patch_embed_args, FRT_OP_PATCH_EMBED)                      \
  X(flow_step, frt_flow_step_args, FRT_OP_FLOW_STEP)                            \
  X(flow_layers, frt_flow_layers_args, FRT_OP_FLOW_LAYERS)
