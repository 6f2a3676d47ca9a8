// SPDX-License-Identifier: Apache-2.0
// The experts of 1 to 16 rows: two kernels around the stream of stream.cuh.
//
//   hidden  a unit is eight columns of an expert's width: eight gate rows and the eight up rows
//   that
//           go with them, so that both sums of a value meet in one lane. Four warps share a unit's
//           inputs and add up through shared memory. Blocks have equal runs of units. It also adds
//           delta to the residual: here nobody reads that any more.
//   down    a block has sixteen output columns; half of an expert's width at these columns is a
//   task
//           of one warp. The slots are filled while `hidden` still runs: that kernel lets this one
//           start only after it has seen the logits, so they are complete here, too. The results of
//           all assignments meet in shared memory and are summed in order of j.
//
// Neither kernel uses more than half of an SM, so that both find room on it.
#include <algorithm>

#include "../common/async_copy.cuh"
#include "stream.cuh"

namespace frt::cuda {
namespace {

constexpr int kQuads = kExpertWarps / 4;  // units at a time
constexpr int kHiddenSlots = 4;
// What is larger because of its scales has fewer slots, so that both kernels fit into an SM.
template <MoeFormat kFormat>
constexpr int kDownSlots = kFormat == MoeFormat::kBf16 ? 6 : 4;
constexpr int kHalves = 2;
constexpr int kColumns = 16;  // of a block of down

// ---- hidden ----------------------------------------------------------------------------------

template <MoeFormat kFormat>
constexpr std::size_t hidden_shared() {
  return static_cast<std::size_t>(kExpertWarps) * kHiddenSlots * StreamShape<kFormat>::kSlotBytes +
         kQuads * 2 * 4 * 512;  // and the sums of two units per quad
}

// Sixteen bytes more than the row, so that rows begin in different banks.
__host__ __device__ constexpr int padded_eights(int inputs) {
  return inputs / 8 + 1;
}

template <MoeFormat kFormat>
__device__ __forceinline__ StreamRows unit_rows(const HiddenArgs& args, const TopK& selected,
                                                int unit) {
  const int units = args.width / 8;
  const int expert = selected.ids[selected.leaders[unit / units]];
  const int column = unit % units * 8 + threadIdx.x % 32 / 4;
  return {moe_row_as<kFormat>(args.gate, expert, column),
          moe_row_as<kFormat>(args.up, expert, column), true, true};
}

// The two values of this lane, from the sums of the quad's four warps.
template <MoeFormat kFormat>
__device__ __forceinline__ void store_unit(const HiddenArgs& args, const TopK& selected, int unit,
                                           const float4* sums) {
  const int lane = threadIdx.x % 32, units = args.width / 8;
  const int leader = selected.leaders[unit / units];
  const int column = unit % units * 8 + lane / 4;
  float4 sum = sums[lane];
#pragma unroll
  for (int w = 1; w < 4; ++w) {
    const float4 other = sums[w * 32 + lane];
    sum = make_float4(sum.x + other.x, sum.y + other.y, sum.z + other.z, sum.w + other.w);
  }
  float gate_factor = 1.0f, up_factor = 1.0f;
  if constexpr (kFormat != MoeFormat::kBf16) {
    gate_factor = moe_row(args.gate, selected.ids[leader], column).factor;
    up_factor = moe_row(args.up, selected.ids[leader], column).factor;
  }
  int a = leader;
  for (int m = 0; m < lane % 4 * 2 && a >= 0; ++m) a = selected.next[a];
  if (a < 0) return;
  args.hidden[static_cast<int64_t>(a) * args.width + column] =
      from_float<bf16>(gated_bf16(sum.x * gate_factor, sum.z * up_factor));
  a = selected.next[a];
  if (a < 0) return;
  args.hidden[static_cast<int64_t>(a) * args.width + column] =
      from_float<bf16>(gated_bf16(sum.y * gate_factor, sum.w * up_factor));
}

template <MoeFormat kFormat>
__device__ __forceinline__ void run_units(const HiddenArgs& args, const TopK& selected,
                                          const uint4* x, uint8_t* slots, float4* sums) {
  using Stream = Stream16<kFormat>;
  using Shape = StreamShape<kFormat>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int quad = warp / 4, part = warp % 4;
  const int units = selected.leader_count * (args.width / 8);
  const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  const int begin = block * (units / blocks) + min(block, units % blocks);
  const int end = begin + units / blocks + (block < units % blocks ? 1 : 0);
  const int all_steps = (args.inputs + Shape::kStep - 1) / Shape::kStep;
  const int share = (all_steps + 3) / 4;
  const int first = part * share, steps = max(0, min(share, all_steps - first));

  uint8_t* ring = slots + warp * kHiddenSlots * Shape::kSlotBytes;
  const uint32_t ring_address = shared_address(ring);
  int fetch_unit = begin + quad, fetch_step = 0;
  StreamRows fetch_rows{};
  const auto fetch = [&](int slot) {
    if (fetch_unit < end && steps > 0) {
      if (fetch_step == 0) fetch_rows = unit_rows<kFormat>(args, selected, fetch_unit);
      Stream::fetch(args.gate, args.up, fetch_rows, first + fetch_step,
                    ring_address + slot * Shape::kSlotBytes);
      if (++fetch_step == steps) {
        fetch_step = 0;
        fetch_unit += kQuads;
      }
    }
    copies_commit();
  };
  for (int slot = 0; slot < kHiddenSlots; ++slot) fetch(slot);

  int slot = 0, turn = 0;
  for (int unit = begin + quad; unit < end; unit += kQuads, turn ^= 1) {
    int a = selected.leaders[unit / (args.width / 8)];
    for (int m = 0; m < lane / 4 && a >= 0; ++m) a = selected.next[a];
    const uint4* row = a >= 0 ? x + a / args.selected.top_k * padded_eights(args.inputs) : nullptr;
    const StreamRows rows =
        Shape::kScaled ? unit_rows<kFormat>(args, selected, unit) : StreamRows{};
    float c[4] = {};
    for (int step = 0; step < steps; ++step) {
      copies_wait<kHiddenSlots - 1>();
      Stream::consume(args.gate, args.up, rows, first + step, ring + slot * Shape::kSlotBytes, row,
                      c);
      fetch(slot);
      slot = slot + 1 == kHiddenSlots ? 0 : slot + 1;
    }
    float4* mine = sums + (quad * 2 + turn) * 4 * 32;
    mine[part * 32 + lane] = make_float4(c[0], c[1], c[2], c[3]);
    asm volatile("bar.sync %0, 128;" ::"r"(quad + 1) : "memory");
    if (part == (unit / kQuads) % 4) store_unit<kFormat>(args, selected, unit, mine);
  }
}

template <MoeFormat kFormat>
__global__ void __launch_bounds__(kExpertThreads, 2)
    hidden_kernel(const __grid_constant__ HiddenArgs args) {
  extern __shared__ uint4 dynamic[];
  __shared__ TopK selected;
  pdl_wait();
  pdl_trigger();  // only now: `down` reads the logits before it waits
  const int rows = active_rows(args.selected.rows, args.selected.row_count);
  const int assignments = rows * args.selected.top_k;
  auto* slots = reinterpret_cast<uint8_t*>(dynamic);
  auto* sums = reinterpret_cast<float4*>(slots + hidden_shared<kFormat>()) - kQuads * 2 * 4 * 32;
  auto* x = reinterpret_cast<uint4*>(slots + hidden_shared<kFormat>());  // (rows, padded)
  select(args.selected, rows, selected);
  const int eights = args.inputs / 8;
  for (int i = threadIdx.x; i < rows * eights; i += kExpertThreads) {
    x[i / eights * padded_eights(args.inputs) + i % eights] =
        reinterpret_cast<const uint4*>(args.x)[i];
  }
  __syncthreads();
  link(assignments, args.selected.experts, selected);
  run_units<kFormat>(args, selected, x, slots, sums);

  if (args.selected.logits && blockIdx.x == gridDim.x - 1 && threadIdx.x < assignments) {
    args.selected.ids[threadIdx.x] = selected.ids[threadIdx.x];
    args.selected.weights[threadIdx.x] = selected.weights[threadIdx.x];
  }
  if (!args.norm.residual || !args.norm.delta) return;
  const int stride = gridDim.x * kExpertThreads;
  for (int i = blockIdx.x * kExpertThreads + threadIdx.x; i < rows * eights; i += stride) {
    float values[8];
    load_residual(args.norm, static_cast<int64_t>(i) * 8, values);
    store_residual(args.norm, static_cast<int64_t>(i) * 8, values);
  }
}

// ---- down --------------------------------------------------------------------------------------

template <MoeFormat kFormat>
constexpr std::size_t down_shared() {
  return static_cast<std::size_t>(kExpertWarps) * kDownSlots<kFormat> *
         StreamShape<kFormat>::kSlotBytes;
}

// Items: every eight rows of the shared expert, then the experts in use. A task is half an item.
struct Task {
  const MoeMatrix* matrix;
  int expert, first, steps;
  bool shared;
  int member;  // shared: the first row; else the first assignment
};

template <MoeFormat kFormat>
__device__ __forceinline__ Task task_of(const DownArgs& args, const TopK& selected, int task,
                                        int shared_items) {
  constexpr int kStep = StreamShape<kFormat>::kStep;
  const int item = task / kHalves, half = task % kHalves;
  Task made;
  made.shared = item < shared_items;
  made.matrix = made.shared ? &args.shared_down : &args.down;
  made.member = made.shared ? item * kMembers : selected.leaders[item - shared_items];
  made.expert = made.shared ? 0 : selected.ids[made.member];
  const int all_steps = ((made.shared ? args.shared_width : args.width) + kStep - 1) / kStep;
  const int share = (all_steps + kHalves - 1) / kHalves;
  made.first = half * share;
  made.steps = max(0, min(share, all_steps - made.first));
  return made;
}

template <MoeFormat kFormat>
__device__ __forceinline__ StreamRows task_rows(const DownArgs& args, const Task& task) {
  const int column = blockIdx.x * kColumns + threadIdx.x % 32 / 4;
  StreamRows rows;
  rows.low_valid = column < args.inputs;
  rows.high_valid = column + 8 < args.inputs;
  rows.low = moe_row_as<kFormat>(*task.matrix, task.expert, rows.low_valid ? column : 0);
  rows.high = moe_row_as<kFormat>(*task.matrix, task.expert, rows.high_valid ? column + 8 : 0);
  return rows;
}

// results[(assignment, or assignments + row), half, column]
__device__ __forceinline__ float* result_at(float* results, int index, int half) {
  return results + (index * kHalves + half) * kColumns;
}

// The warp's tasks. Before the first is used, `ready` waits for the rows of hidden.
template <MoeFormat kFormat, class Ready>
__device__ __forceinline__ void run_tasks(const DownArgs& args, const TopK& selected, int rows,
                                          uint8_t* slots, float* results, Ready ready) {
  using Stream = Stream16<kFormat>;
  using Shape = StreamShape<kFormat>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int assignments = rows * args.selected.top_k;
  const int shared_items = args.stream_shared ? (rows + kMembers - 1) / kMembers : 0;
  const int tasks = (shared_items + selected.leader_count) * kHalves;
  constexpr int kSlots = kDownSlots<kFormat>;
  uint8_t* ring = slots + warp * kSlots * Shape::kSlotBytes;
  const uint32_t ring_address = shared_address(ring);
  int next = warp, fetch_step = 0;
  Task fetch_task{};
  StreamRows fetch_rows{};
  const auto fetch = [&](int slot) {
    while (next < tasks && fetch_step == 0) {
      fetch_task = task_of<kFormat>(args, selected, next, shared_items);
      if (fetch_task.steps > 0) {
        fetch_rows = task_rows<kFormat>(args, fetch_task);
        break;
      }
      next += kExpertWarps;
    }
    if (next < tasks) {
      Stream::fetch(*fetch_task.matrix, *fetch_task.matrix, fetch_rows,
                    fetch_task.first + fetch_step, ring_address + slot * Shape::kSlotBytes);
      if (++fetch_step == fetch_task.steps) {
        fetch_step = 0;
        next += kExpertWarps;
      }
    }
    copies_commit();
  };
  for (int slot = 0; slot < kSlots; ++slot) fetch(slot);
  const bf16 *hidden, *shared_hidden;
  ready(hidden, shared_hidden);

  int slot = 0;
  for (int index = warp; index < tasks; index += kExpertWarps) {
    const Task task = task_of<kFormat>(args, selected, index, shared_items);
    // Member m of the item: its row of hidden and where its results go.
    const auto member = [&](int m) {
      if (task.shared) return task.member + m < rows ? task.member + m : -1;
      int a = task.member;
      for (; m > 0 && a >= 0; --m) a = selected.next[a];
      return a;
    };
    const int mine = member(lane / 4);
    const bf16* row = task.shared ? shared_hidden + static_cast<int64_t>(mine) * args.shared_width
                                  : hidden + static_cast<int64_t>(mine) * args.width;
    const uint4* x = mine >= 0 ? reinterpret_cast<const uint4*>(row) : nullptr;
    const StreamRows weights = Shape::kScaled ? task_rows<kFormat>(args, task) : StreamRows{};
    float c[4] = {};
    for (int step = 0; step < task.steps; ++step) {
      copies_wait<kSlots - 1>();
      Stream::consume(*task.matrix, *task.matrix, weights, task.first + step,
                      ring + slot * Shape::kSlotBytes, x, c);
      fetch(slot);
      slot = slot + 1 == kSlots ? 0 : slot + 1;
    }
    float low = 1.0f, high = 1.0f;
    if constexpr (Shape::kScaled) {
      low = weights.low.factor;
      high = weights.high.factor;
    }
#pragma unroll
    for (int v = 0; v < 2; ++v) {
      const int target = member(lane % 4 * 2 + v);
      if (target < 0) continue;
      float* result =
          result_at(results, task.shared ? assignments + target : target, index % kHalves);
      result[lane / 4] = c[v] * low;
      result[lane / 4 + 8] = c[2 + v] * high;
    }
  }
}

// The shared expert in another format than the experts': a warp per column.
__device__ __forceinline__ void run_shared(const DownArgs& args, int rows, int assignments,
                                           const bf16* hidden, float* results) {
  const int warp = threadIdx.x / 32, column = blockIdx.x * kColumns + warp;
  if (column >= args.inputs) return;
  const MoeRow weights = moe_row(args.shared_down, 0, column);
  with_format(args.shared_down.type, [&]<MoeFormat kFormat>() {
    for (int row = 0; row < rows; ++row) {
      const bf16* const x[1] = {hidden + static_cast<int64_t>(row) * args.shared_width};
      float sums[1];
      row_dots<kFormat>(args.shared_down, weights, weights.data, x, 1, sums);
      const float sum = warp_sum(sums[0]) * weights.factor;
      if (threadIdx.x % 32 == 0) {
        result_at(results, assignments + row, 0)[warp] = sum;
        result_at(results, assignments + row, 1)[warp] = 0.0f;
      }
    }
  });
}

template <MoeFormat kFormat>
__global__ void __launch_bounds__(kExpertThreads, 2)
    down_kernel(const __grid_constant__ DownArgs args) {
  extern __shared__ uint4 dynamic[];
  __shared__ TopK selected;
  pdl_trigger();
  const int rows = active_rows(args.selected.rows, args.selected.row_count);
  const int assignments = rows * args.selected.top_k;
  auto* slots = reinterpret_cast<uint8_t*>(dynamic);
  auto* results = reinterpret_cast<float*>(slots + down_shared<kFormat>());
  select(args.selected, rows, selected);
  __syncthreads();
  link(assignments, args.selected.experts, selected);

  const bf16* shared_rows = args.shared_hidden;
  const auto ready = [&](const bf16*& hidden, const bf16*& shared_hidden) {
    pdl_wait();
    hidden = args.hidden;
    shared_hidden = args.shared_hidden;
    if (!args.copy_hidden) return;
    const int count = assignments * (args.width / 8), shared = rows * (args.shared_width / 8);
    auto* copies = reinterpret_cast<uint4*>(
        result_at(results, args.selected.rows * (args.selected.top_k + 1), 0));
    for (int i = threadIdx.x; i < count + shared; i += kExpertThreads) {
      copies[i] = i < count ? reinterpret_cast<const uint4*>(hidden)[i]
                            : reinterpret_cast<const uint4*>(shared_hidden)[i - count];
    }
    __syncthreads();
    hidden = reinterpret_cast<const bf16*>(copies);
    shared_hidden = hidden + count * 8;
    shared_rows = shared_hidden;
  };
  run_tasks<kFormat>(args, selected, rows, slots, results, ready);
  const bool shared = args.shared_width > 0;
  if (shared && !args.stream_shared) run_shared(args, rows, assignments, shared_rows, results);
  __syncthreads();

  for (int task = threadIdx.x; task < rows * kColumns; task += kExpertThreads) {
    const int row = task / kColumns, index = task % kColumns;
    const int column = blockIdx.x * kColumns + index;
    if (column >= args.inputs) continue;
    const auto result = [&](int at) {
      return result_at(results, at, 0)[index] + result_at(results, at, 1)[index];
    };
    float sum = 0.0f;
    for (int a = row * args.selected.top_k; a < (row + 1) * args.selected.top_k; ++a) {
      const bool valid = selected.ids[a] >= 0 && selected.ids[a] < args.selected.experts;
      if (valid) sum = fmaf(selected.weights[a], result(a), sum);
    }
    if (shared) sum = fmaf(sigmoid(args.shared_scale[row]), result(assignments + row), sum);
    args.y[static_cast<int64_t>(row) * args.inputs + column] = from_float<bf16>(sum);
  }
}

// ---- host --------------------------------------------------------------------------------------

// Hidden rows are copied to shared memory up to so many bytes.
constexpr int64_t kCopiedHidden = 24 * 1024;

template <class Function>
auto with_stream_format(WeightType type, Function&& function) {
  switch (moe_format(type)) {
    case MoeFormat::kFp8:
      return function.template operator()<MoeFormat::kFp8>();
    case MoeFormat::kFp4:
      return function.template operator()<MoeFormat::kFp4>();
    default:
      return function.template operator()<MoeFormat::kBf16>();
  }
}

}  // namespace

bool streams(const MoeMatrix& matrix) {
  if (matrix.type == WeightType::kF32 || !reads_in_portions(matrix)) return false;
  // Sixty-four FP8 values share a scale: one step.
  return matrix.type != WeightType::kFp8Block || matrix.block_shift >= 6;
}

ExpertPlan plan_experts(const MoeBlock& block) {
  ExpertPlan plan{};
  const int64_t rows = block.args.rows, top_k = block.args.experts_per_token;
  const int64_t copies = rows * (top_k * block.width + block.shared_width) * 2;
  plan.copy_hidden = copies <= kCopiedHidden;
  const int64_t x = rows * padded_eights(block.inputs) * 16;
  const int64_t results = rows * (top_k + 1) * kHalves * kColumns * 4;
  std::size_t hidden = 0, down = 0;
  with_stream_format(block.gate.type,
                     [&]<MoeFormat kFormat>() { hidden = hidden_shared<kFormat>(); });
  with_stream_format(block.down.type, [&]<MoeFormat kFormat>() { down = down_shared<kFormat>(); });
  plan.hidden_bytes = beside_static(hidden + static_cast<std::size_t>(x));
  plan.down_bytes =
      beside_static(down + static_cast<std::size_t>(results + (plan.copy_hidden ? copies : 0)));
  return plan;
}

void launch_experts(Stream& stream, const ExpertPlan& plan, const HiddenArgs& hidden,
                    const DownArgs& down) {
  const auto blocks = static_cast<unsigned>(stream.device().properties().multiprocessors);
  with_stream_format(hidden.gate.type, [&]<MoeFormat kFormat>() {
    launch(stream, {dim3(blocks), dim3(kExpertThreads), plan.hidden_bytes}, hidden_kernel<kFormat>,
           hidden);
  });
  with_stream_format(down.down.type, [&]<MoeFormat kFormat>() {
    launch(stream,
           {dim3(static_cast<unsigned>(ceil_div(down.inputs, kColumns))), dim3(kExpertThreads),
            plan.down_bytes},
           down_kernel<kFormat>, down);
  });
}

}  // namespace frt::cuda
