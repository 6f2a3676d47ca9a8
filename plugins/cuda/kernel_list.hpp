// SPDX-License-Identifier: Apache-2.0
// kernel_list.hpp - how an operator file becomes kernels of a device.
//
// An operator file (ops/<family>.cu) checks an argument struct and launches device code on the
// stream. An eager stream runs it, a capturing stream records it: one code path for both.
//
//   void rms_norm(Stream& stream, const frt_rms_norm_args& args);      // throws frt::Error
//   void register_norm(KernelList& list) {
//     list.add<frt_rms_norm_args>(FRT_OP_RMS_NORM, kFloatTypes, {}, rms_norm);
//   }
//
// Where several kernels can compute one operation, a table of variants selects (ops/variants.hpp).
#pragma once

#include <frt/kernels.h>

#include <cstdint>
#include <span>

#include "ops/variants.hpp"

namespace frt::cuda {

class Device;
class Stream;

// Activation types of most operators.
inline constexpr frt_dtype_set kFloatTypes =
    FRT_DTYPE_BIT(FRT_DTYPE_F32) | FRT_DTYPE_BIT(FRT_DTYPE_BF16);

// Element types of the activations that a kernel reads and writes; one set where they are alike.
struct Activations {
  Activations(frt_dtype_set both) : inputs(both), outputs(both) {}
  Activations(frt_dtype_set reads, frt_dtype_set writes) : inputs(reads), outputs(writes) {}
  frt_dtype_set inputs, outputs;
};

// The kernels of one device, as the register_* functions of ops/ see them. Frozen when all of them
// have run; KernelTable (kernel_table.hpp) keeps them.
class KernelList {
 public:
  KernelList(const KernelList&) = delete;
  KernelList& operator=(const KernelList&) = delete;

  // The device the kernels are for; registration may ask for its properties.  [setup]
  Device& device() noexcept { return device_; }

  // Adds one operator, with weights in formats that stay where they are. `function` throws
  // frt::Error for arguments it refuses and for launches that fail.  [setup]
  template <class Args>
  void add(const char* name, Activations activations, std::span<const frt_weight_format> weights,
           void (*function)(Stream&, const Args&)) {
    add_entry({name, sizeof(Args), activations, weights, reinterpret_cast<AnyFunction>(function),
               [](AnyFunction any, const char* operator_name, Stream& stream, const void* args) {
                 const auto& typed = *static_cast<const Args*>(args);
                 if (typed.struct_size < sizeof(Args)) {
                   refuse_size(operator_name, typed.struct_size, sizeof(Args));
                 }
                 reinterpret_cast<void (*)(Stream&, const Args&)>(any)(stream, typed);
               }});
  }

  // Adds the table of an operation, which outlives the list.  [setup]
  template <class Call>
  void add_variants(const Variants<Call>& table) {
    for (const Variant<Call>& variant : table.all) {
      add_variant(table.operation, variant.name, variant.needs, !variant.supports, &variant);
    }
  }

 protected:
  explicit KernelList(Device& device) : device_(device) {}
  ~KernelList() = default;

  // One operator: `call` knows the types that `function` lost.
  using AnyFunction = void (*)();
  struct Entry {
    const char* name;
    uint32_t args_size;
    Activations activations;
    std::span<const frt_weight_format> weights;
    AnyFunction function;
    void (*call)(AnyFunction any, const char* operator_name, Stream& stream, const void* args);
  };
  void add_entry(const Entry& entry);
  void add_variant(const char* operation, const char* name, const Needs& needs, bool supports_all,
                   const void* address);
  // Throws: the caller was compiled with another version of the struct.
  [[noreturn]] static void refuse_size(const char* operator_name, uint64_t bytes,
                                       uint64_t expected);

  Device& device_;
};

}  // namespace frt::cuda
