// SPDX-License-Identifier: Apache-2.0
// kernel_list.hpp - how an operator file becomes kernels of a device.
//
// An operator file (ops/<family>.cu) checks an argument struct and launches device code on the
// stream. An eager stream runs it, a capturing stream records it: one code path for both.
//
//   void rms_norm(Stream& stream, const frt_rms_norm_args& args);      // throws frt::Error
//   void register_norm(KernelList& list) {
//     list.add<frt_rms_norm_args>(FRT_OP_RMS_NORM, kFloatTypes, 0, rms_norm);
//   }
#pragma once

#include <frt/kernels.h>
#include <frt/error.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace frt::cuda {

class Device;
class Stream;

// Activation types of most operators.
inline constexpr frt_dtype_set kFloatTypes =
    FRT_DTYPE_BIT(FRT_DTYPE_F32) | FRT_DTYPE_BIT(FRT_DTYPE_BF16);

// The kernels of one device. Filled by the register_* functions of ops/, then frozen.
class KernelList {
 public:
  explicit KernelList(Device& device) : device_(device) {}
  ~KernelList();
  KernelList(const KernelList&) = delete;
  KernelList& operator=(const KernelList&) = delete;

  // The device the kernels are for; registration may ask for its properties.  [setup]
  Device& device() noexcept { return device_; }

  // Adds one operator. `function` throws frt::Error for arguments it refuses and for launches that
  // fail.  [setup]
  template <class Args>
  void add(const char* name, frt_dtype_set activations, frt_weight_set weights,
           void (*function)(Stream&, const Args&)) {
    add_entry(std::make_unique<TypedEntry<Args>>(device_, name, function), sizeof(Args),
              activations, weights);
  }

  // The frozen list, for frt_kernels_v1::list.  [setup]
  const std::vector<frt_kernel_desc>& descriptors() const noexcept { return descriptors_; }

 private:
  struct Entry {
    Entry(Device& owner, const char* entry_name) : device(owner), name(entry_name) {}
    virtual ~Entry() = default;
    virtual void launch(Stream& stream, const void* args) = 0;
    Device& device;
    const char* name;
  };

  template <class Args>
  struct TypedEntry final : Entry {
    using Launch = void (*)(Stream&, const Args&);
    TypedEntry(Device& owner, const char* entry_name, Launch function)
        : Entry(owner, entry_name), launch_function(function) {}
    void launch(Stream& stream, const void* args) override {
      const auto& typed = *static_cast<const Args*>(args);
      if (typed.struct_size < sizeof(Args)) {
        throw Error(FRT_ERR_ABI, std::string(name) + ": the argument struct has " +
                                     std::to_string(typed.struct_size) + " bytes, expected " +
                                     std::to_string(sizeof(Args)) + "; rebuild the caller");
      }
      launch_function(stream, typed);
    }
    Launch launch_function;
  };

  void add_entry(std::unique_ptr<Entry> entry, std::size_t args_size, frt_dtype_set activations,
                 frt_weight_set weights);
  static frt_status launch_entry(void* self, frt_backend_stream stream, const void* args,
                                 frt_error* error);

  Device& device_;
  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<frt_kernel_desc> descriptors_;
};

}  // namespace frt::cuda
