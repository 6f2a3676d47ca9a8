// SPDX-License-Identifier: Apache-2.0
// frt.attention_append/1, frt.attention/1 and frt.attention_block/1: tasks. The work of
// a task is in attention_append.cpp, attention_split.cpp and attention_tile.cpp.
#include <frt/ops/checks/attention.hpp>

#include <algorithm>

#include "../device.hpp"
#include "active.hpp"
#include "attention.hpp"
#include "numbers.hpp"
#include "reference.hpp"
#include "registry.hpp"

namespace frt::cpu {
namespace {

class Append {
 public:
  Append(Device& device, const frt_attention_append_args& args)
      : args_(args),
        plain_(device.reference_numerics()),
        floats_((args.rotary_dim + args.head_dim + 15) / 16 * 16),
        workers_(device.options().threads) {}

  std::size_t scratch_bytes() const noexcept {
    return static_cast<std::size_t>(workers_ * floats_) * sizeof(float);
  }

  void run(Pool& pool, std::byte* scratch) const noexcept {
    const int64_t rows = args_.sequences.rows;
    pool.run(args_.sequences.count * rows, [&](int64_t task, int worker) {
      const int64_t b = task / rows;
      const int64_t q = task % rows;
      if (q >= active_length(args_.sequences, b)) return;
      float* work = reinterpret_cast<float*>(scratch) + worker * floats_;
      if (plain_) {
        reference::attention_append(args_, b, static_cast<int32_t>(q), work);
      } else {
        append_row(args_, b, q, work);
      }
    });
  }

 private:
  frt_attention_append_args args_;
  bool plain_;
  int64_t floats_;
  int64_t workers_;
};

class Attention {
 public:
  Attention(Device& device, const frt_attention_args& args)
      : args_(args),
        plain_(device.reference_numerics()),
        layout_(args),
        workers_(device.options().threads),
        floats_(plain_ ? static_cast<int64_t>(args.max_rows) + 2 * args.head_dim : layout_.work) {}

  std::size_t scratch_bytes() const noexcept {
    return static_cast<std::size_t>((plain_ ? 0 : layout_.parts) + workers_ * floats_) *
           sizeof(float);
  }

  void run(Pool& pool, std::byte* scratch) const noexcept {
    float* parts = reinterpret_cast<float*>(scratch);
    if (plain_) return run_plain(pool, parts);
    float* work = parts + layout_.parts;
    int64_t splits = 0;  // the most of any row
    int64_t rows = 0;    // the most of any sequence
    bool tiles = false;
    for (int64_t b = 0; b < args_.sequences.count; ++b) {
      const int64_t length = active_length(args_.sequences, b);
      if (length > kSplitRows) tiles = true;
      if (length == 0 || length > kSplitRows) continue;
      // The last row sees most, but a row before it may have its positions split more finely.
      for (int64_t q = 0; q < length; ++q) {
        splits = std::max(splits, split_count(seen_positions(args_, b, q)));
      }
      rows = std::max(rows, length);
    }
    run_splits(pool, parts, work, splits, rows);
    if (tiles) run_tiles(pool, work);
  }

 private:
  void run_splits(Pool& pool, float* parts, float* work, int64_t splits,
                  int64_t rows) const noexcept {
    const int64_t kv_heads = args_.kv_heads;
    pool.run(args_.sequences.count * kv_heads * splits, [&](int64_t task, int worker) {
      const int64_t b = task / splits / kv_heads;
      if (active_length(args_.sequences, b) > kSplitRows) return;
      attend_split(args_, layout_, b, task / splits % kv_heads, task % splits, parts,
                   work + worker * floats_);
    });
    if (splits < 2) return;
    pool.run(args_.sequences.count * rows * args_.heads, [&](int64_t task, int) {
      const int64_t b = task / args_.heads / rows;
      const int64_t row = task / args_.heads % rows;
      const int64_t length = active_length(args_.sequences, b);
      if (row >= length || length > kSplitRows) return;
      if (split_count(seen_positions(args_, b, row)) < 2) return;
      finish_splits(args_, layout_, b, row, task % args_.heads, parts);
    });
  }

  void run_tiles(Pool& pool, float* work) const noexcept {
    const int64_t tiles = (args_.sequences.rows + layout_.tile_rows - 1) / layout_.tile_rows;
    const int64_t tasks = args_.sequences.count * tiles * args_.kv_heads;
    // The last rows see most: they go first, so that no worker is left alone with them.
    pool.run(tasks, [&](int64_t task, int worker) {
      const int64_t left = tasks - 1 - task;
      const int64_t tile = left / args_.kv_heads / args_.sequences.count;
      const int64_t b = left / args_.kv_heads % args_.sequences.count;
      const int64_t length = active_length(args_.sequences, b);
      if (length <= kSplitRows || tile * layout_.tile_rows >= length) return;
      attend_tile(args_, layout_, b, left % args_.kv_heads, tile * layout_.tile_rows,
                  work + worker * floats_);
    });
  }

  void run_plain(Pool& pool, float* work) const noexcept {
    const int64_t rows = args_.sequences.rows;
    pool.run(args_.sequences.count * rows * args_.heads, [&](int64_t task, int worker) {
      const int64_t b = task / args_.heads / rows;
      const auto q = static_cast<int32_t>(task / args_.heads % rows);
      if (q >= active_length(args_.sequences, b)) return;
      reference::attention(args_, b, q, static_cast<int32_t>(task % args_.heads),
                           work + worker * floats_);
    });
  }

  frt_attention_args args_;
  bool plain_;
  AttentionLayout layout_;
  int64_t workers_;
  int64_t floats_;
};

std::unique_ptr<Node> prepare_append(Device& device, const frt_attention_append_args& args) {
  check_attention_append(Checks(FRT_OP_ATTENTION_APPEND), args);
  const Append append(device, args);
  return make_node([append](Pool& pool, std::byte* scratch) noexcept { append.run(pool, scratch); },
                   append.scratch_bytes());
}

std::unique_ptr<Node> prepare_attention(Device& device, const frt_attention_args& args) {
  check_attention(Checks(FRT_OP_ATTENTION), args);
  const Attention attention(device, args);
  return make_node(
      [attention](Pool& pool, std::byte* scratch) noexcept { attention.run(pool, scratch); },
      attention.scratch_bytes());
}

std::unique_ptr<Node> prepare_block(Device& device, const frt_attention_block_args& args) {
  check_attention_block(Checks(FRT_OP_ATTENTION_BLOCK), args);
  const Append append(device, args.append);
  const Attention attention(device, args.attention);
  const auto body = [append, attention](Pool& pool, std::byte* scratch) noexcept {
    append.run(pool, scratch);
    attention.run(pool, scratch);
  };
  return make_node(body, std::max(append.scratch_bytes(), attention.scratch_bytes()));
}

}  // namespace

void register_attention(KernelList& list) {
  list.add<frt_attention_append_args>(FRT_OP_ATTENTION_APPEND, kFloatTypes, {}, prepare_append);
  list.add<frt_attention_args>(FRT_OP_ATTENTION, kFloatTypes, {}, prepare_attention);
  list.add<frt_attention_block_args>(FRT_OP_ATTENTION_BLOCK, kFloatTypes, {}, prepare_block);
}

}  // namespace frt::cpu
