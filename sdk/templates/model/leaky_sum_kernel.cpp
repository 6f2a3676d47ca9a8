// SPDX-License-Identifier: Apache-2.0
#include "leaky_sum_kernel.hpp"

#include "leaky_sum.hpp"

#include <frt/checks.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace acme {
namespace {

bool is_cuda(const frt::Context& context) {
  const std::string_view kind = context.info().native_kind;
  if (kind == "cpu") return false;
#ifdef ACME_CUDA
  if (kind == "cuda") return true;
#endif
  throw frt::Error(
      FRT_ERR_UNSUPPORTED,
      std::string(kLeakySum) + " has no code for devices of kind '" + std::string(kind) +
          "' in this build; use a device of the CPU, or for CUDA build with -DACME_CUDA=ON");
}

// On a thread of the backend, when the work before is done.
void leaky_sum_cpu(const LeakySumArgs& args) noexcept {
  const frt_sequences& sequences = args.sequences;
  for (int32_t b = 0; b < sequences.count; ++b) {
    if (sequences.length[b] <= 0) continue;
    auto* state = reinterpret_cast<float*>(static_cast<std::byte*>(args.state) +
                                           sequences.slot[b] * args.slot_stride);
    for (int32_t q = 0; q < sequences.length[b]; ++q) {
      const int64_t row = (static_cast<int64_t>(b) * sequences.rows + q) * args.width;
      for (int32_t i = 0; i < args.width; ++i) {
        const float kept = args.decay[i] * state[i];
        args.y[row + i] = state[i] = kept + args.x[row + i];
      }
    }
  }
}

}  // namespace

LeakySumKernel::LeakySumKernel(const frt::Context& context)
    : context_(context), cuda_(is_cuda(context)) {
  frt_kernel_desc kernel{};
  kernel.struct_size = sizeof(kernel);
  kernel.args_size = sizeof(LeakySumArgs);
  kernel.name = kLeakySum;
  kernel.inputs = kernel.outputs = FRT_DTYPE_BIT(FRT_DTYPE_F32);
  kernel.kernel = {this, &LeakySumKernel::launch, nullptr};
  owner_ = context.register_kernels(std::span(&kernel, 1));
}

frt_status LeakySumKernel::launch(void* self, frt_backend_stream stream, const void* pointer,
                                  frt_error* error) {
  return frt::guard(error, [&] {
    const auto& kernel = *static_cast<const LeakySumKernel*>(self);
    const auto& args = *static_cast<const LeakySumArgs*>(pointer);
    const frt::Checks checks(kLeakySum);
    checks.at_least("struct_size", args.struct_size, sizeof(args));
    checks.positive("width", args.width);
    checks.sequences(args.sequences);
    checks.pointer("decay", args.decay);
    checks.pointer("x", args.x);
    checks.pointer("state", args.state);
    checks.pointer("y", args.y);
#ifdef ACME_CUDA
    if (kernel.cuda_) {
      const char* failure = leaky_sum_cuda(args, kernel.context_.native(stream));
      if (failure) throw frt::Error(FRT_ERR_DEVICE, std::string(kLeakySum) + ": " + failure);
      return;
    }
#endif
    kernel.context_.call(stream, [args] { leaky_sum_cpu(args); });
  });
}

}  // namespace acme
