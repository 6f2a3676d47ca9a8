// SPDX-License-Identifier: Apache-2.0
// The operators of the backend: f32 activations, f32 and bf16 weights, naive loops.
//
// An operator is a struct with its Args, kName, kWeights (empty: it takes none), `check`, which
// runs at the launch, and `run`, which runs in stream order. What the operator's header rules out,
// frt/operator_checks.hpp refuses; what this backend lacks, `check` itself. Each file of operators
// adds its own.
#pragma once

#include <frt/kernels.h>
#include <frt/ops/sequences.h>
#include <frt/operator_checks.hpp>
#include <frt/plugin.hpp>

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace simple {

void submit(frt_backend_stream stream, std::function<void()> task);

class Kernels {
 public:
  Kernels();
  const std::vector<frt_kernel_desc>& descriptors() const { return descriptors_; }

  template <class Op>
  void add() {
    descriptors_.push_back({sizeof(frt_kernel_desc),
                            sizeof(typename Op::Args),
                            Op::kName,
                            FRT_DTYPE_BIT(FRT_DTYPE_F32),
                            FRT_DTYPE_BIT(FRT_DTYPE_F32),
                            Op::kWeights.data(),
                            static_cast<uint32_t>(Op::kWeights.size()),
                            0,
                            {nullptr, launch<Op>, supports<Op>}});
  }

 private:
  // The arguments, checked.
  template <class Op>
  static typename Op::Args checked(const void* args) {
    const frt::Checks check(Op::kName);
    check.pointer("args", args);
    const auto& values = *static_cast<const typename Op::Args*>(args);
    check.at_least("struct_size", values.struct_size, sizeof(values));
    Op::check(check, values);
    return values;
  }
  template <class Op>
  static frt_status supports(void*, const void* args, frt_error* error) {
    return frt::guard(error, [&] { checked<Op>(args); });
  }
  template <class Op>
  static frt_status launch(void*, frt_backend_stream stream, const void* args, frt_error* error) {
    return frt::guard(error, [&] {
      frt::Checks(Op::kName).pointer("stream", stream);
      submit(stream, [values = checked<Op>(args)] { Op::run(values); });
    });
  }

  std::vector<frt_kernel_desc> descriptors_;
};

void add_row_operators(Kernels& kernels);
void add_dense_operators(Kernels& kernels);
void add_gated_delta_operators(Kernels& kernels);
void add_attention_operators(Kernels& kernels);
void add_sampling_operators(Kernels& kernels);

using Formats = std::span<const frt_weight_format>;

// ---- what the operators share ----------------------------------------------------------------

// Refuses an element type that an operator knows and this backend has not.
inline void only_f32(const frt::Checks& check, const char* argument, frt_dtype dtype) {
  if (dtype == FRT_DTYPE_F32) return;
  check.unsupported(argument,
                    "is " + std::string(frt::dtype_name(dtype)) + "; acme.simple has f32 alone");
}

inline int32_t rows_to_run(int32_t rows, const int32_t* row_count) {
  return row_count ? std::min(rows, *row_count) : rows;
}

// What a slot of a state has at base + slot * stride bytes.
template <class Element>
Element* in_slot(void* base, int64_t stride, int32_t slot) {
  return reinterpret_cast<Element*>(static_cast<char*>(base) + slot * stride);
}
template <class Element>
const Element* in_slot(const void* base, int64_t stride, int32_t slot) {
  return reinterpret_cast<const Element*>(static_cast<const char*>(base) + slot * stride);
}

// Calls visit(b, slot, length) for every sequence that takes part.
template <class Visit>
void for_sequences(const frt_sequences& sequences, Visit visit) {
  for (int32_t b = 0; b < sequences.count; ++b) {
    const int32_t length = std::min(sequences.length[b], sequences.rows);
    if (length > 0) visit(b, sequences.slot[b], length);
  }
}

float sigmoid(float x);
float silu(float x);

// The weight formats of all products.
inline constexpr frt_weight_format kPlain[] = {FRT_WEIGHT_F32, FRT_WEIGHT_BF16};

// Row `row` of a matrix (rows, cols) as f32: f32 in place, bf16 converted into `storage`.
const float* weight_row(const frt_weight& weight, int64_t row, std::vector<float>& storage);

}  // namespace simple
