// SPDX-License-Identifier: Apache-2.0
// layers_tiles.cuh - what the attention of an expert's layers (layers_attention.cuh) is
// given, and how its queries are divided between clusters and its keys between their blocks.
#pragma once

#include "../../common/arch.cuh"
#include "../../common/numbers.cuh"
#include "layers_sync.cuh"

namespace frt::cuda {

inline constexpr int kFlowQueries = 32;  // of a tile

// Of one layer. Sequence b has `rows` rows, at most 128; it sees them all, and the first
// context_length[c] rows of context c = b / sequences_per_context. Query head h has key/value head
// h / (heads / kv_heads). All rows lie as frt_dense_attention_args says, aligned to 16 bytes; scale
// > 0. Of 32 columns of a query, pair 4 u + j of neighbours lies at the place of pair 4 j + u: a
// lane of a product reads eight neighbouring columns of keys, which take part in this order.
struct FlowAttention {
  float scale;
  float y_scale;  // above 0: y is e4m3
  int count, rows, heads, kv_heads;
  int context_rows, sequences_per_context;
  const int32_t* context_length;
  const bf16 *q, *k, *v, *context_k, *context_v;
  int64_t q_stride, kv_stride, context_stride, y_stride;  // elements
  void* y;
};

// Tiles of queries, numbered row * group + head, of a key/value head of a sequence. Keys are the
// part of a block: first those of the rows themselves, which come last.
struct FlowAttentionTile {
  int first, last;  // queries
  int head;         // key/value head
  int sequence;
  bool lone;                   // the cluster has no other keys to look at
  int own, all;                // keys of the rows themselves, and with those of the context
  int64_t context_at, own_at;  // elements to the first of the context's and of the rows' own
};

// Of a block, in shared memory for the whole launch.
struct FlowAttentionShared {
  uint64_t barriers[3];  // nobody needs the tile before; maxima and totals; sums
  FlowAttentionTile tile;
};

#if FRT_ARCH_WGMMA_OR_HOST

// One thread, before the block knows of the barriers.
__device__ __forceinline__ void attention_init(FlowAttentionShared& shared) {
  barrier_init(shared.barriers, kFlowCluster);
  barrier_init(shared.barriers + 1, 1);
  barrier_init(shared.barriers + 2, 1);
}

// Tiles of one head that share their keys, one after the other, are a work.
struct FlowWorks {
  int tiles, of_head, of_sequence, count;
};

__device__ __forceinline__ FlowWorks works_of(const FlowAttention& a, const FlowPlace& place,
                                              int queries) {
  FlowWorks works;
  const int tiles = (a.rows * (a.heads / a.kv_heads) + queries - 1) / queries;
  const int all = tiles * a.kv_heads * a.count;
  works.tiles = (all + place.clusters - 1) / place.clusters;
  works.of_head = (tiles + works.tiles - 1) / works.tiles;
  works.of_sequence = works.of_head * a.kv_heads;
  works.count = works.of_sequence * a.count;
  return works;
}

__device__ __forceinline__ FlowAttentionTile tile_of(const FlowAttention& a, const FlowPlace& place,
                                                     const FlowWorks& works, int work, int queries,
                                                     int dim) {
  FlowAttentionTile tile;
  tile.lone = works.count <= place.clusters;
  tile.sequence = work / works.of_sequence;
  tile.head = work / works.of_head % a.kv_heads;
  tile.first = work % works.of_head * works.tiles * queries;
  tile.last = min(tile.first + works.tiles * queries, a.rows * (a.heads / a.kv_heads));
  int context = 0;
  int64_t c = 0;
  if (a.context_rows > 0) {
    c = tile.sequence / a.sequences_per_context;
    context = max(0, min(__ldg(a.context_length + c), a.context_rows));
  }
  const int context0 = context * place.rank / kFlowCluster;
  const int own0 = a.rows * place.rank / kFlowCluster;
  tile.own = a.rows * (place.rank + 1) / kFlowCluster - own0;
  tile.all = tile.own + context * (place.rank + 1) / kFlowCluster - context0;
  tile.context_at = (c * a.context_rows + context0) * a.context_stride + tile.head * dim;
  tile.own_at =
      (static_cast<int64_t>(tile.sequence) * a.rows + own0) * a.kv_stride + tile.head * dim;
  return tile;
}

#endif

}  // namespace frt::cuda
