// SPDX-License-Identifier: Apache-2.0
// layers_plan.hpp - what the kernel of an expert's layers is given: which arguments it takes,
// and its own.
#pragma once

#include <frt/ops/flow_layers.h>
#include <frt/weights.hpp>

#include <algorithm>
#include <cstdint>
#include <span>

#include "../../common/tensor_map.hpp"
#include "layers_fused.cuh"

namespace frt::cuda {

// Boxes of so many rows of x and both halves of a unit.
inline BoxedTensor flow_boxes(const void* data, int rows, int inputs, int box_rows) {
  return {data,
          3,
          {64, static_cast<uint64_t>(rows), static_cast<uint64_t>(inputs / 64)},
          {static_cast<uint64_t>(inputs) * 2, 128},
          {64, static_cast<uint32_t>(box_rows), 2}};
}

// Boxes of `eights` eights of rows, both halves of a unit of one behind the other.
inline BoxedTensor flow_eights(const void* data, int eights, int inputs) {
  const uint64_t row = static_cast<uint64_t>(inputs) * 2;
  return {data,
          5,
          {64, 8, 2, static_cast<uint64_t>(eights), static_cast<uint64_t>(inputs / kFlowInputs)},
          {row, 128, 8 * row, 2 * kFlowInputs},
          {64, 8, 2, static_cast<uint32_t>(eights), 1}};
}

// Boxes of `pairs` rows and those `pair_bytes` further on, in the order of rows.
inline BoxedTensor flow_pairs(const void* data, int rows, int inputs, uint64_t pair_bytes,
                              uint32_t pairs) {
  const uint64_t row = static_cast<uint64_t>(inputs) * 2;
  return {data,
          5,
          {64, 2, 1, static_cast<uint64_t>(rows), static_cast<uint64_t>(inputs / 64)},
          {pair_bytes, row, row, 128},
          {64, 2, 1, pairs, 2}};
}

// Boxes of rows that belong to nothing.
inline BoxedTensor flow_rows_alone(const void* data, int rows, int inputs) {
  const uint64_t row = static_cast<uint64_t>(inputs) * 2;
  return {data,
          5,
          {64, 1, 1, static_cast<uint64_t>(rows), static_cast<uint64_t>(inputs / 64)},
          {row, row, row, 128},
          {64, 1, 1, kFlowOutputs, 2}};
}

// Boxes of pairs of outputs of heads, `half` rows apart, of two units: pairs j, j + 4, j + 8 and
// j + 12 lie one behind the other, so that lane t of a row gets pairs 4 t to 4 t + 3.
inline BoxedTensor flow_heads(const void* data, int rows, int inputs, int half) {
  const uint64_t row = static_cast<uint64_t>(inputs) * 2;
  return {data,
          5,
          {64, 2, 4, static_cast<uint64_t>(rows - half - kFlowPairs + 4),
           static_cast<uint64_t>(inputs / 64)},
          {static_cast<uint64_t>(half) * row, (kFlowPairs / 4) * row, row, 128},
          {64, 2, 4, kFlowPairs / 4, 4}};
}

inline int flow_rows(const frt_flow_layers_args& args) {
  return args.count * args.rows;
}

// The number of shift vectors that go with the rows; 0: not taken.
inline int flow_shifts(const frt_flow_layers_args& args) {
  const frt_modulation& first = args.layers[0].attention_norm;
  const bool two = first.clean_rows != nullptr;
  for (int i = 0; i < args.layer_count; ++i) {
    for (const frt_modulation* m : {&args.layers[i].attention_norm, &args.layers[i].hidden_norm}) {
      if (!m->rows || m->clean_rows != first.clean_rows || (two && m->period != first.period) ||
          (two && !m->clean)) {
        return 0;
      }
    }
  }
  return two ? 2 : 1;
}

// Whether what the products multiply is FP8. (Of all of them, or of none: flow_fits.)
inline bool flow_fp8(const frt_flow_layers_args& args) {
  return args.layers[0].qkv_scale > 0;
}

inline bool flow_fits(const frt_flow_layers_args& args) {
  const bool fp8 = flow_fp8(args);
  const int inputs = fp8 ? 2 * kFlowInputs : kFlowInputs;  // of a unit
  const auto plain = [fp8](const frt_weight& weight, float scale) {
    return weight.format == (fp8 ? kWeightFp8Tensor : kWeightBf16) && (scale > 0) == fp8;
  };
  const auto aligned = [](const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
  };
  const int queries = args.heads * args.head_dim;
  if (args.dtype != FRT_DTYPE_BF16 || args.layer_count < 1 || args.layer_count > kFlowLayers ||
      args.head_dim != 256 || args.width % 256 != 0 || queries % (inputs * kFlowCluster) != 0 ||
      args.hidden % (inputs * kFlowCluster) != 0 || args.context_stride % 8 != 0 ||
      flow_shifts(args) == 0) {
    return false;
  }
  bool good = aligned(args.x) && aligned(args.q) && aligned(args.kv) && aligned(args.y) &&
              aligned(args.h) && aligned(args.table);
  for (int i = 0; i < args.layer_count; ++i) {
    const frt_flow_layer& layer = args.layers[i];
    for (const frt_weight* weight :
         {&layer.query, &layer.key_value, &layer.output, &layer.gate, &layer.up, &layer.down}) {
      good &= aligned(weight->data);
    }
    good &= plain(layer.query, layer.qkv_scale) && plain(layer.key_value, layer.qkv_scale) &&
            plain(layer.output, layer.output_scale) && plain(layer.gate, layer.hidden_scale) &&
            plain(layer.up, layer.hidden_scale) && plain(layer.down, layer.down_scale);
    // Boxes reach from a row of `gate` to the one of `up`.
    good &= static_cast<const char*>(layer.up.data) > static_cast<const char*>(layer.gate.data);
    good &= aligned(layer.context_k) && aligned(layer.context_v) &&
            aligned(layer.attention_norm.rows) && aligned(layer.attention_norm.clean) &&
            aligned(layer.hidden_norm.rows) && aligned(layer.hidden_norm.clean);
  }
  return good && (!fp8 || args.width <= kFlowMostCodes);
}

inline FlowTiles flow_tiles(const frt_flow_layers_args& args) {
  const auto up = [](int count, int of) { return (count + of - 1) / of; };
  const int inputs = flow_fp8(args) ? 2 * kFlowInputs : kFlowInputs;
  FlowTiles made;
  made.head_tiles = args.head_dim / (2 * kFlowPairs);
  made.query_tiles = args.heads * made.head_tiles;
  made.input_tiles = made.query_tiles + 2 * args.kv_heads * made.head_tiles;
  made.gate_tiles = up(2 * args.hidden, kFlowOutputs);
  made.output_tiles = up(args.width, kFlowOutputs);
  made.width_units = args.width / inputs;
  made.attended_units = args.heads * args.head_dim / (inputs * kFlowCluster);
  made.hidden_units = args.hidden / (inputs * kFlowCluster);
  return made;
}

// Eights of rows of x, with those of shifts.
inline int flow_eights_of(const frt_flow_layers_args& args) {
  return (flow_rows(args) + (flow_fp8(args) ? 0 : flow_shifts(args)) + 7) / 8;
}

// Working memory, in bytes from its begin: x as the products need it, the squares of its rows, in
// FP8 what blocks convert for their cluster, and what attention and the first products of the MLP
// yield where whole eights of rows are read.
struct FlowScratch {
  std::size_t x, squares, codes, attention, h, bytes;
};
inline FlowScratch flow_scratch(const frt_flow_layers_args& args, const FlowKernel& kernel,
                                int blocks) {
  const bool fp8 = flow_fp8(args);
  const auto rows = static_cast<std::size_t>(flow_rows(args) + 2),  // with those of shifts
      whole_rows = static_cast<std::size_t>(8 * flow_eights_of(args)),
             width = static_cast<std::size_t>(args.width);
  const std::size_t value = fp8 ? 1 : 2;  // bytes
  std::size_t end = 0;
  const auto place = [&end](std::size_t bytes) {
    const std::size_t begin = end;
    end += (bytes + 127) / 128 * 128;
    return begin;
  };
  FlowScratch made{};
  made.x = place(rows * width * (fp8 ? 4 : 2));
  made.squares = place(rows * ((width + kFlowOutputs - 1) / kFlowOutputs) * 4);
  made.codes = place(fp8 ? static_cast<std::size_t>(blocks) * 8 * width : 0);
  if (kernel.by_eights) {
    const auto queries = static_cast<std::size_t>(args.heads * args.head_dim);
    made.attention = place(whole_rows * queries * value);
    made.h = place(whole_rows * static_cast<std::size_t>(args.hidden) * value);
  }
  made.bytes = end;
  return made;
}

// encode(boxes) makes a map. `scratch`: flow_scratch().bytes.
template <class Encode>
void flow_fill(FlowArgs& made, const frt_flow_layers_args& args, const FlowKernel& kernel,
               int blocks, void* scratch, uint32_t* word, const Encode& encode) {
  const bool fp8 = flow_fp8(args);
  const int rows = flow_rows(args);
  // Of rows of x, in pairs of bytes.
  const int width = fp8 ? args.width / 2 : args.width, hidden = fp8 ? args.hidden / 2 : args.hidden;
  const int queries = args.heads * args.head_dim / (fp8 ? 2 : 1);
  made.layer_count = args.layer_count;
  made.rows = rows;
  made.shifts = fp8 ? 0 : flow_shifts(args);
  made.width = args.width;
  made.hidden = args.hidden;
  made.heads = args.heads;
  made.kv_heads = args.kv_heads;
  made.head_dim = args.head_dim;
  made.tiles = flow_tiles(args);
  made.count = args.count;
  made.sequence_rows = args.rows;
  made.sequences_per_context = std::max(args.sequences_per_context, 1);
  made.context_rows = args.context_rows;
  made.positions = args.positions;
  made.context_stride = args.context_stride;
  made.epsilon = args.epsilon;
  made.each_column = 1.0f / static_cast<float>(args.width);
  made.scale = args.scale;
  made.context_length = args.context_length;
  made.clean_rows = args.layers[0].attention_norm.clean_rows;
  made.period = made.clean_rows ? args.layers[0].attention_norm.period : 1;
  made.x_f32 = args.x_dtype == FRT_DTYPE_F32;
  made.table = args.table;
  made.x = args.x;
  const FlowScratch places = flow_scratch(args, kernel, blocks);
  auto* const memory = static_cast<uint8_t*>(scratch);
  made.y = reinterpret_cast<bf16*>(memory + places.x);
  made.squares = reinterpret_cast<float*>(memory + places.squares);
  made.codes = memory + places.codes;
  made.attention = reinterpret_cast<bf16*>(kernel.by_eights ? memory + places.attention : args.y);
  made.h = reinterpret_cast<bf16*>(kernel.by_eights ? memory + places.h : args.h);
  made.q = static_cast<bf16*>(args.q);
  made.kv = static_cast<bf16*>(args.kv);
  made.word = word;
  const int eights = flow_eights_of(args);
  made.normed = encode(
      fp8 ? flow_boxes(made.codes, 8 * blocks, width, 8)
          : flow_boxes(made.y, rows + made.shifts, width, kernel.by_eights ? 8 : kernel.rows));
  const auto own = [&](const void* data, int inputs) {
    return encode(kernel.by_eights ? flow_eights(data, eights, inputs)
                                   : flow_boxes(data, rows, inputs, kernel.rows));
  };
  made.attended = own(made.attention, queries);
  made.activated = own(made.h, hidden);
  for (int i = 0; i < args.layer_count; ++i) {
    const frt_flow_layer& from = args.layers[i];
    FlowMaps& maps = made.maps[i];
    const auto heads = [&](const frt_weight& weight) {
      return encode(flow_heads(weight.data, weight.rows, width, args.head_dim / 2));
    };
    const auto alone = [&](const frt_weight& weight) {
      return encode(flow_rows_alone(weight.data, weight.rows, fp8 ? weight.cols / 2 : weight.cols));
    };
    maps.query = heads(from.query);
    maps.key_value = heads(from.key_value);
    maps.output = alone(from.output);
    maps.gate_up =
        encode(flow_pairs(from.gate.data, from.gate.rows, width,
                          static_cast<uint64_t>(static_cast<const char*>(from.up.data) -
                                                static_cast<const char*>(from.gate.data)),
                          kFlowOutputs / 2));
    maps.down = alone(from.down);
    FlowLayer& layer = made.layers[i];
    layer.attention = {from.attention_norm.rows, from.attention_norm.clean};
    layer.hidden = {from.hidden_norm.rows, from.hidden_norm.clean};
    layer.context_k = from.context_k;
    layer.context_v = from.context_v;
    if (!fp8) continue;
    layer.factors = {from.qkv_scale * from.query.global_scale,
                     from.qkv_scale * from.key_value.global_scale,
                     from.output_scale * from.output.global_scale,
                     from.hidden_scale * from.gate.global_scale,
                     from.hidden_scale * from.up.global_scale,
                     from.down_scale * from.down.global_scale,
                     1 / from.qkv_scale,
                     1 / from.hidden_scale,
                     1 / from.down_scale,
                     from.output_scale};
  }
}

}  // namespace frt::cuda
