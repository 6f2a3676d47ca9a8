// SPDX-License-Identifier: Apache-2.0
// node.hpp - one recorded operation of the CPU backend, and how operators become kernels.
//
// An operator file (ops/<family>.cpp) turns an argument struct into a Node: `prepare` checks the
// arguments, does what need be done once (primitive descriptors, partitions), and returns the
// node. An eager stream runs it once; a capturing stream appends it to the executable, which runs
// it for ever. So there is one code path for both.
//
//   std::unique_ptr<Node> prepare_rms_norm(Device& device, const frt_rms_norm_args& args);
//   void register_norm(KernelList& list) {
//     list.add<frt_rms_norm_args>("frt.rms_norm/1", kFloatTypes, {}, prepare_rms_norm);
//   }
#pragma once

#include <frt/draft/kernel_variants.h>
#include <frt/kernels.h>
#include <frt/error.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "pool.hpp"

namespace frt::cpu {

class Device;

// Activation types of most operators.
inline constexpr frt_dtype_set kFloatTypes =
    FRT_DTYPE_BIT(FRT_DTYPE_F32) | FRT_DTYPE_BIT(FRT_DTYPE_BF16);

// Element types of the activations that a kernel reads and writes; one set where they are alike.
struct Activations {
  Activations(frt_dtype_set both) : inputs(both), outputs(both) {}
  Activations(frt_dtype_set reads, frt_dtype_set writes) : inputs(reads), outputs(writes) {}
  frt_dtype_set inputs, outputs;
};

class Node {
 public:
  virtual ~Node() = default;

  // Bytes of working memory `run` needs, constant per node. Nodes of one executable run one after
  // another and share one block.  [any]
  virtual std::size_t scratch_bytes() const noexcept { return 0; }

  // Does the work. `scratch` is aligned to 64 bytes, its content is undefined. Reads sizes and
  // positions that live in buffers now, not at prepare. Allocation-free, never throws.  [hot]
  virtual void run(Pool& pool, std::byte* scratch) noexcept = 0;

  // What went wrong in the last `run`, asked right after it; the stream's next sync reports it.
  // [hot]
  virtual frt_status status() const noexcept { return FRT_OK; }
};

// A node made of a callable `void(Pool&, std::byte* scratch) noexcept`, or one that returns the
// frt_status of the run.
template <class Body>
class FunctionNode final : public Node {
 public:
  FunctionNode(Body body, std::size_t scratch) : body_(std::move(body)), scratch_(scratch) {}
  std::size_t scratch_bytes() const noexcept override { return scratch_; }
  void run(Pool& pool, std::byte* scratch) noexcept override {
    if constexpr (std::is_same_v<decltype(body_(pool, scratch)), frt_status>) {
      status_ = body_(pool, scratch);
    } else {
      body_(pool, scratch);
    }
  }
  frt_status status() const noexcept override { return status_; }

 private:
  Body body_;
  std::size_t scratch_;
  frt_status status_ = FRT_OK;
};

template <class Body>
std::unique_ptr<Node> make_node(Body body, std::size_t scratch_bytes = 0) {
  return std::make_unique<FunctionNode<Body>>(std::move(body), scratch_bytes);
}

// The kernels of one device. Filled by the register_* functions of ops/, then frozen.
class KernelList {
 public:
  explicit KernelList(Device& device) : device_(device) {}
  ~KernelList();
  KernelList(const KernelList&) = delete;
  KernelList& operator=(const KernelList&) = delete;

  // Adds one operator, with weights in formats that stay where they are. `prepare` throws
  // frt::Error for arguments it refuses.  [setup]
  template <class Args>
  void add(const char* name, Activations activations, std::span<const frt_weight_format> weights,
           std::unique_ptr<Node> (*prepare)(Device&, const Args&)) {
    add_entry(std::make_unique<TypedEntry<Args>>(device_, name, prepare), sizeof(Args), activations,
              weights);
  }

  // The frozen list, for frt_kernels_v1::list.  [setup]
  const std::vector<frt_kernel_desc>& descriptors() const noexcept { return descriptors_; }

  // For frt_kernel_variants_draft: every operator has one variant, "kernel".  [any]
  uint32_t variant_count() const noexcept { return static_cast<uint32_t>(entries_.size()); }
  // Throws FRT_ERR_OUT_OF_RANGE.  [any]
  void read_variant(uint32_t index, frt_kernel_variant& variant) const;

 private:
  struct Entry {
    Entry(Device& owner, const char* entry_name) : device(owner), name(entry_name) {}
    virtual ~Entry() = default;
    virtual std::unique_ptr<Node> prepare(const void* args) = 0;
    Device& device;
    const char* name;
    std::atomic<uint64_t> launches{0};
  };

  template <class Args>
  struct TypedEntry final : Entry {
    using Prepare = std::unique_ptr<Node> (*)(Device&, const Args&);
    TypedEntry(Device& owner, const char* entry_name, Prepare function)
        : Entry(owner, entry_name), prepare_function(function) {}
    std::unique_ptr<Node> prepare(const void* args) override {
      const auto& typed = *static_cast<const Args*>(args);
      if (typed.struct_size < sizeof(Args)) {
        throw Error(FRT_ERR_ABI, std::string(name) + ": the argument struct has " +
                                     std::to_string(typed.struct_size) + " bytes, expected " +
                                     std::to_string(sizeof(Args)) + "; rebuild the caller");
      }
      return prepare_function(device, typed);
    }
    Prepare prepare_function;
  };

  void add_entry(std::unique_ptr<Entry> entry, std::size_t args_size, Activations activations,
                 std::span<const frt_weight_format> weights);
  static frt_status supports(void* self, const void* args, frt_error* error);
  static frt_status launch(void* self, frt_backend_stream stream, const void* args,
                           frt_error* error);

  Device& device_;
  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<frt_kernel_desc> descriptors_;
};

}  // namespace frt::cpu
