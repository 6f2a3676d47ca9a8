// SPDX-License-Identifier: Apache-2.0
// Flow matching: frt.flow_start/1, frt.flow_input/1, frt.flow_output/1, frt.flow_update/1,
// frt.flow_step/1. Plain loops: a chunk of actions has some thousand values, which is nothing
// beside the products of a step.
#include <frt/ops/checks/flow.hpp>

#include <cstring>

#include "dense.hpp"
#include "numbers.hpp"
#include "registry.hpp"
#include "row_norm.hpp"

namespace frt::cpu {
namespace {

std::unique_ptr<Node> prepare_start(Device&, const frt_flow_start_args& args) {
  check_flow_start(Checks(FRT_OP_FLOW_START), args);
  return make_node([args](Pool&, std::byte*) noexcept {
    const int64_t chunk = static_cast<int64_t>(args.horizon) * args.dim;
    const int32_t locked = args.locked ? std::clamp(*args.locked, 0, args.horizon) : 0;
    *args.clean_rows = locked > 0 && *args.locked_clean != 0 ? locked : 0;
    for (int32_t s = 0; s < args.samples; ++s) {
      std::copy_n(args.noise + s * chunk, chunk, args.x + s * chunk);
      std::copy_n(args.previous, static_cast<int64_t>(locked) * args.dim, args.x + s * chunk);
    }
  });
}

void input_row(const frt_flow_input_args& args, int64_t row) noexcept {
  const float* x = args.x + row * args.dim;
  for (int32_t n = 0; n < args.width; ++n) {
    const float* weight = args.weight + static_cast<int64_t>(n) * args.dim;
    float sum = args.bias[n];
    for (int32_t k = 0; k < args.dim; ++k) sum += x[k] * weight[k];
    for (int64_t branch = 0; branch < args.branches; ++branch) {
      store_float(args.h_dtype, args.h, (branch * args.rows + row) * args.width + n, sum);
    }
  }
}

std::unique_ptr<Node> make_input(const frt_flow_input_args& args) {
  return make_node([args](Pool& pool, std::byte*) noexcept {
    pool.run(args.rows, [&](int64_t row, int) { input_row(args, row); });
  });
}

std::unique_ptr<Node> make_output(Device& device, const frt_flow_output_args& args) {
  const bool plain = device.reference_numerics();
  const std::size_t floats = static_cast<std::size_t>(args.width + 15) / 16 * 16;
  const std::size_t scratch =
      static_cast<std::size_t>(device.options().threads) * floats * sizeof(float);
  return make_node(
      [args, plain, floats](Pool& pool, std::byte* memory) noexcept {
        pool.run(args.rows, [&](int64_t row, int worker) {
          float* normed =
              reinterpret_cast<float*>(memory) + static_cast<std::size_t>(worker) * floats;
          norm_row(plain, args.norm, row, args.width, args.h_dtype,
                   element(args.h_dtype, args.h, row * args.width), FRT_DTYPE_F32, normed);
          for (int32_t n = 0; n < args.dim; ++n) {
            const float* weight = args.weight + static_cast<int64_t>(n) * args.width;
            float lanes[16] = {};
            for (int32_t k = 0; k < args.width; ++k) lanes[k % 16] += normed[k] * weight[k];
            float sum = args.bias[n];
            for (const float lane : lanes) sum += lane;
            args.v[row * args.dim + n] = sum;
          }
        });
      },
      scratch);
}

void update_row(const frt_flow_update_args& args, int64_t sample, int64_t row) noexcept {
  const int64_t first = (sample * args.horizon + row) * args.dim;
  const int64_t branch_stride = static_cast<int64_t>(args.samples) * args.horizon * args.dim;
  const float* last = args.v + (args.branches - 1) * branch_stride;
  const bool locked = args.previous && row < *args.locked;
  for (int64_t i = first; i < first + args.dim; ++i) {
    float v = last[i];
    for (int32_t branch = 0; branch + 1 < args.branches; ++branch) {
      v += args.beta[branch] * (args.v[branch * branch_stride + i] - last[i]);
    }
    if (args.previous) {
      const float previous = args.previous[row * args.dim + i - first];
      const float error = previous - (args.x[i] - args.time * v);
      v -= std::min(args.pull, *args.cap) * (args.weights[row] * error);
    }
    if (args.velocity) args.velocity[i] = v;
    args.x[i] = locked ? args.previous[row * args.dim + i - first] : args.x[i] + args.step * v;
  }
}

std::unique_ptr<Node> make_update(const frt_flow_update_args& args) {
  return make_node([args](Pool&, std::byte*) noexcept {
    for (int64_t s = 0; s < args.samples; ++s) {
      for (int64_t row = 0; row < args.horizon; ++row) update_row(args, s, row);
    }
  });
}

std::unique_ptr<Node> prepare_input(Device&, const frt_flow_input_args& args) {
  check_flow_input(Checks(FRT_OP_FLOW_INPUT), args);
  return make_input(args);
}

std::unique_ptr<Node> prepare_output(Device& device, const frt_flow_output_args& args) {
  check_flow_output(Checks(FRT_OP_FLOW_OUTPUT), args);
  return make_output(device, args);
}

std::unique_ptr<Node> prepare_update(Device&, const frt_flow_update_args& args) {
  check_flow_update(Checks(FRT_OP_FLOW_UPDATE), args);
  return make_update(args);
}

std::unique_ptr<Node> prepare_step(Device& device, const frt_flow_step_args& args) {
  check_flow_step(Checks(FRT_OP_FLOW_STEP), args);
  auto output = make_output(device, args.output);
  auto update = make_update(args.update);
  if (!args.next.h) return make_sequence(std::move(output), std::move(update));
  return make_sequence(std::move(output), std::move(update), make_input(args.next));
}

}  // namespace

void register_flow(KernelList& list) {
  list.add<frt_flow_start_args>(FRT_OP_FLOW_START, 0, {}, prepare_start);
  list.add<frt_flow_input_args>(FRT_OP_FLOW_INPUT, kFloatTypes, {}, prepare_input);
  list.add<frt_flow_output_args>(FRT_OP_FLOW_OUTPUT, kFloatTypes, {}, prepare_output);
  list.add<frt_flow_update_args>(FRT_OP_FLOW_UPDATE, 0, {}, prepare_update);
  list.add<frt_flow_step_args>(FRT_OP_FLOW_STEP, kFloatTypes, {}, prepare_step);
}

}  // namespace frt::cpu
