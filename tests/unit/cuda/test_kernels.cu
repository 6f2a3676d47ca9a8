// SPDX-License-Identifier: Apache-2.0
#include "test_kernels.hpp"

#include "ops/common/launch.cuh"
#include "ops/linear/gemm_w4a4.cuh"
#include "ops/moe/grouped.cuh"
#include "ops/registry.hpp"
#include "small_copies.hpp"

namespace frt::cuda {
namespace {

using namespace cuda_test;

__device__ void pause(uint32_t microseconds) {
  uint64_t start = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  for (uint64_t now = start; now - start < uint64_t{microseconds} * 1000;) {
    __nanosleep(200);
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  }
}

__global__ void step_kernel(volatile uint32_t* value, uint32_t add, uint32_t microseconds) {
  pdl_trigger();
  pdl_wait();
  const uint32_t before = *value;
  pause(microseconds);
  *value = before * 3 + add;
}

__global__ void write_kernel(uint32_t* out, uint32_t value, uint32_t count, uint32_t microseconds) {
  pdl_trigger();
  pdl_wait();
  for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) out[i] = value + i;
  if (threadIdx.x == 0) pause(microseconds);
}

__global__ void read_kernel(uint32_t* out, const uint32_t* in, uint32_t count) {
  pdl_trigger();
  pdl_wait();
  for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) out[i] = in[i];
}

__global__ void fault_kernel(uint32_t* address) {
  *address = 1;
}

__global__ void shared_kernel(uint32_t* value, uint32_t added) {
  constexpr uint32_t kDeclared = 6144;
  __shared__ uint32_t declared[kDeclared];
  extern __shared__ uint32_t more[];
  pdl_trigger();
  pdl_wait();
  const auto word = [&](uint32_t i) -> uint32_t& {
    return i < kDeclared ? declared[i] : more[i - kDeclared];
  };
  for (uint32_t i = threadIdx.x; i < kDeclared + added; i += blockDim.x) word(i) = i + 1;
  __syncthreads();
  if (threadIdx.x > 0) return;
  uint32_t sum = 0;
  for (uint32_t i = 0; i < kDeclared + added; ++i) sum += word(i);
  *value = sum;
}

void step(Stream& stream, const StepArgs& args) {
  launch(stream, {1, 1}, step_kernel, args.value, args.add, args.microseconds);
}

void through_scratch(Stream& stream, const ThroughScratchArgs& args) {
  auto* block = static_cast<uint32_t*>(stream.scratch(args.count * sizeof(uint32_t)));
  launch(stream, {1, 256}, write_kernel, block, args.value, args.count, args.microseconds);
  launch(stream, {1, 256}, read_kernel, args.out, block, args.count);
}

void shared(Stream& stream, const SharedArgs& args) {
  launch(stream, {1, 256, args.dynamic_bytes}, shared_kernel, args.value, args.dynamic_bytes / 4);
}

void fp4(Stream& stream, const Fp4Args& args) {
  Product product{};
  product.x_dtype = args.x_dtype;
  product.y_dtype = args.y_dtype;
  product.rows = args.rows;
  product.row_count = args.row_count;
  product.x = args.x;
  product.x_stride = args.inputs;
  product.weight.type = WeightType::kNvfp4;
  product.weight.rows = args.outputs;
  product.weight.cols = args.inputs;
  product.weight.data = args.weight;
  product.weight.scale = args.weight_scales;
  product.weight.global_scale = args.global_scale;
  product.y = args.y;
  product.y_stride = args.outputs;
  product.accumulate = args.accumulate != 0;
  const Fp4Rows x{args.rows,   args.inputs, args.row_count,
                  args.values, args.scales, args.row_scales};
  quantise_fp4_rows(stream, args.x_dtype, args.x, args.inputs, x);
  w4a4_gemm(stream, product, x);
}

void fault(Stream& stream, const FaultArgs&) {
  launch(stream, {1, 1}, fault_kernel, reinterpret_cast<uint32_t*>(uintptr_t{64}));
}

void fork(Stream& stream, const ForkArgs& args) {
  Device& device = stream.device();
  cudaStream_t side = nullptr;
  cudaEvent_t event = nullptr;
  device.check(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking), "fork");
  device.check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "fork");
  device.check(cudaEventRecord(event, stream.native()), "fork");
  device.check(cudaStreamWaitEvent(side, event, 0), "fork");
  step_kernel<<<1, 1, 0, side>>>(args.value, 1, 0);
  device.check(cudaGetLastError(), "fork");
  if (args.join) {
    device.check(cudaEventRecord(event, side), "join");
    device.check(cudaStreamWaitEvent(stream.native(), event, 0), "join");
  }
  cudaEventDestroy(event);
  cudaStreamDestroy(side);
}

}  // namespace

void register_operators(KernelList& list) {
  list.add<StepArgs>(kStep, kFloatTypes, {}, step);
  list.add<ThroughScratchArgs>(kThroughScratch, kFloatTypes, {}, through_scratch);
  list.add<SharedArgs>(kShared, kFloatTypes, {}, shared);
  list.add<FaultArgs>(kFault, kFloatTypes, {}, fault);
  list.add<ForkArgs>(kFork, kFloatTypes, {}, fork);
  list.add<BlasArgs>(kBlas, kFloatTypes, {}, submit_blas);
  list.add<Fp4Args>(kFp4, kFloatTypes, {}, fp4);
  register_small_copies(list.device());
}

}  // namespace frt::cuda

namespace frt::cuda_test {

bool may_round_experts(bool exact) {
  cuda::GroupedProduct call{};
  call.product.rows = 130;
  call.product.matrix.type = WeightType::kNvfp4;
  call.product.matrix.rows = 64;
  call.product.matrix.cols = 128;
  call.x_rows = 130;
  call.experts = 1;
  call.tile_rows = cuda::kLargeTile;
  call.exact = exact;
  return cuda::grouped_w4a4_supports(call);
}

}  // namespace frt::cuda_test
