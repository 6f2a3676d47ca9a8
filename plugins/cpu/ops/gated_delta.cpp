// SPDX-License-Identifier: Apache-2.0
// frt.gated_delta/1, frt.gated_delta_block/1 and frt.gated_delta_commit/1.
//
// Value heads are independent: a task is one value head of one sequence (delta.cpp).
#include <frt/gated_delta.hpp>
#include <frt/ops/checks/gated_delta.hpp>

#include <utility>
#include <vector>

#include "../device.hpp"
#include "active.hpp"
#include "causal_conv.hpp"
#include "delta.hpp"
#include "numbers.hpp"
#include "reference.hpp"
#include "registry.hpp"
#include "rms.hpp"

namespace frt::cpu {
namespace {

// What the heads of one node share.
class Heads {
 public:
  Heads(Device& device, const frt_gated_delta_args& args)
      : args_(args),
        plain_(device.reference_numerics()),
        floats_(delta_work_floats(args)),
        workers_(static_cast<std::size_t>(device.options().threads)) {}

  bool plain() const noexcept { return plain_; }
  std::size_t scratch_bytes() const noexcept { return workers_ * floats_ * sizeof(float); }

  void run(int64_t b, int32_t head, int worker, std::byte* scratch) const noexcept {
    float* work = reinterpret_cast<float*>(scratch) + static_cast<std::size_t>(worker) * floats_;
    if (plain_) {
      reference::gated_delta(args_, b, head, work);
    } else {
      delta_head(args_, b, head, work);
    }
  }

 private:
  frt_gated_delta_args args_;
  bool plain_;
  std::size_t floats_;
  std::size_t workers_;
};

std::unique_ptr<Node> prepare_gated_delta(Device& device, const frt_gated_delta_args& args) {
  check_gated_delta(Checks(FRT_OP_GATED_DELTA), args);
  const Heads heads(device, args);
  const auto body = [args, heads](Pool& pool, std::byte* scratch) noexcept {
    pool.run(static_cast<int64_t>(args.sequences.count) * args.value_heads,
             [&](int64_t task, int worker) {
               heads.run(task / args.value_heads, static_cast<int32_t>(task % args.value_heads),
                         worker, scratch);
             });
  };
  return make_node(body, heads.scratch_bytes());
}

// The fused block; without z no norm. Its parts do what the operators do, bit for bit; c and o stay
// in the cache between them where a task can do all of it.
class Block {
 public:
  Block(Device& device, const frt_gated_delta_block_args& args)
      : args_(args), heads_(device, args.delta) {}

  std::size_t scratch_bytes() const noexcept { return heads_.scratch_bytes(); }

  void run(Pool& pool, std::byte* scratch) const noexcept {
    const frt_gated_delta_args& delta = args_.delta;
    const int64_t groups = static_cast<int64_t>(delta.sequences.count) * delta.key_heads;
    if (groups >= 2 * pool.workers()) {
      // A key head with its value heads needs only its own channels.
      pool.run(groups, [&](int64_t task, int worker) {
        run_group(task / delta.key_heads, static_cast<int32_t>(task % delta.key_heads), worker,
                  scratch);
      });
      return;
    }
    run_causal_conv(heads_.plain(), args_.conv, pool);
    pool.run(static_cast<int64_t>(delta.sequences.count) * delta.value_heads,
             [&](int64_t task, int worker) {
               run_head(task / delta.value_heads, static_cast<int32_t>(task % delta.value_heads),
                        worker, scratch);
             });
  }

 private:
  void run_group(int64_t b, int32_t key_head, int worker, std::byte* scratch) const noexcept {
    const frt_gated_delta_args& delta = args_.delta;
    const int32_t ratio = delta.value_heads / delta.key_heads;
    const int32_t keys = delta.key_heads * delta.key_dim;
    const auto convolve = [&](int32_t first, int32_t count) {
      causal_conv_channels(heads_.plain(), args_.conv, b, first, first + count);
    };
    convolve(key_head * delta.key_dim, delta.key_dim);
    convolve(keys + key_head * delta.key_dim, delta.key_dim);
    convolve(2 * keys + key_head * ratio * delta.value_dim, ratio * delta.value_dim);
    for (int32_t i = 0; i < ratio; ++i) run_head(b, key_head * ratio + i, worker, scratch);
  }

  void run_head(int64_t b, int32_t head, int worker, std::byte* scratch) const noexcept {
    heads_.run(b, head, worker, scratch);
    if (!args_.z) return;
    const frt_gated_delta_args& delta = args_.delta;
    const int64_t first = b * delta.sequences.rows;
    const int32_t length = active_length(delta.sequences, b);
    for (int64_t row = first; row < first + length; ++row) {
      const int64_t at = (row * delta.value_heads + head) * delta.value_dim;
      gated_rms_norm_row(heads_.plain(), delta.value_dim, args_.epsilon, delta.dtype,
                         element(delta.dtype, delta.o, at), delta.dtype,
                         element(delta.dtype, args_.z, at), args_.norm_weight,
                         element(delta.dtype, args_.y, at));
    }
  }

  frt_gated_delta_block_args args_;
  Heads heads_;
};

std::unique_ptr<Node> prepare_gated_delta_block(Device& device,
                                                const frt_gated_delta_block_args& args) {
  check_gated_delta_block(Checks(FRT_OP_GATED_DELTA_BLOCK), args);
  const Block block(device, args);
  return make_node([block](Pool& pool, std::byte* scratch) noexcept { block.run(pool, scratch); },
                   block.scratch_bytes());
}

// Layer by layer, for they share their working memory.
std::unique_ptr<Node> prepare_gated_delta_commit(Device& device,
                                                 const frt_gated_delta_commit_args& args) {
  check_gated_delta_commit(Checks(FRT_OP_GATED_DELTA_COMMIT), args);
  std::vector<Block> layers;
  for (int32_t layer = 0; layer < args.layer_count; ++layer) {
    frt_gated_delta_block_args block{};
    block.conv = commit_conv(args, layer);
    block.delta = commit_delta(args, layer);
    layers.emplace_back(device, block);
  }
  const std::size_t scratch_bytes = layers.front().scratch_bytes();
  const auto body = [layers = std::move(layers)](Pool& pool, std::byte* scratch) noexcept {
    for (const Block& layer : layers) layer.run(pool, scratch);
  };
  return make_node(body, scratch_bytes);
}

}  // namespace

void register_gated_delta(KernelList& list) {
  list.add<frt_gated_delta_args>(FRT_OP_GATED_DELTA, kFloatTypes, {}, prepare_gated_delta);
  list.add<frt_gated_delta_block_args>(FRT_OP_GATED_DELTA_BLOCK, kFloatTypes, {},
                                       prepare_gated_delta_block);
  list.add<frt_gated_delta_commit_args>(FRT_OP_GATED_DELTA_COMMIT, kFloatTypes, {},
                                        prepare_gated_delta_commit);
}

}  // namespace frt::cpu
