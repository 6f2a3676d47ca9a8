// SPDX-License-Identifier: Apache-2.0
// frt/dlpack.hpp - exchange of buffers with other frameworks through DLPack 1.x, without a copy.
//
// The structs restate the DLPack ABI of major version 1 (DLManagedTensorVersioned and what it
// holds), so that this header needs no other; pointers may be cast to and from those of dlpack.h.
// Nothing here synchronises: exchange when no work that touches the memory is in flight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <frt/error.hpp>
#include <frt/exec.hpp>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace frt::dlpack {

// ---- the ABI -------------------------------------------------------------------------------

inline constexpr uint32_t kMajor = 1;
inline constexpr uint32_t kMinor = 1;

// DLDeviceType; the device space of a context states its own (frt_device_info::dlpack_type).
inline constexpr int32_t kCpu = 1;
inline constexpr int32_t kCuda = 2;
inline constexpr int32_t kCudaHost = 3;
inline constexpr int32_t kRocm = 10;
inline constexpr int32_t kRocmHost = 11;
inline constexpr int32_t kCudaManaged = 13;

// Flags of a managed tensor.
inline constexpr uint64_t kReadOnly = 1;

struct Version {
  uint32_t major, minor;
};
struct Device {
  int32_t type;
  int32_t id;
};
struct DataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};
struct Tensor {
  void* data;
  Device device;
  int32_t ndim;
  DataType dtype;
  int64_t* shape;    // [ndim]
  int64_t* strides;  // [ndim], in elements
  uint64_t byte_offset;
};
struct ManagedTensor {
  Version version;
  void* manager_ctx;
  void (*deleter)(ManagedTensor* self);
  uint64_t flags;
  Tensor tensor;
};
static_assert(sizeof(Tensor) == 48 && offsetof(Tensor, byte_offset) == 40);
static_assert(sizeof(ManagedTensor) == 80 && offsetof(ManagedTensor, tensor) == 32);

// ---- element types -------------------------------------------------------------------------

namespace detail {

// DLDataTypeCode by frt_dtype; the bits are those of dtype_bits().
inline constexpr uint8_t kNoCode = 255;
inline constexpr uint8_t kCodes[FRT_DTYPE_COUNT] = {kNoCode, 2, 4, 2, 10, 12, 17, 0,  1, 0,
                                                    1,       0, 1, 2, 0,  1,  6,  14, 1, 0};

// Bytes of `shape` packed; throws FRT_ERR_OUT_OF_RANGE for negative sizes and overflow.
inline uint64_t packed_bytes(std::span<const int64_t> shape, uint32_t bits) {
  uint64_t total = bits;
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(total, static_cast<uint64_t>(size), &total)) {
      throw Error(FRT_ERR_OUT_OF_RANGE, "tensor: a size is negative or the product overflows");
    }
  }
  return total / 8 + (total % 8 != 0);
}

// DLDevice of memory in `space` of a context.
inline Device device_of(const frt_device_info& device, frt_space space) {
  const auto type = static_cast<int32_t>(device.dlpack_type);
  if (space == FRT_SPACE_DEVICE) {
    return {type, type == kCpu ? 0 : static_cast<int32_t>(device.ordinal)};
  }
  if (space == FRT_SPACE_HOST_PINNED && type == kCuda) return {kCudaHost, 0};
  if (space == FRT_SPACE_HOST_PINNED && type == kRocm) return {kRocmHost, 0};
  if (space == FRT_SPACE_SHARED && type == kCuda) return {kCudaManaged, 0};
  return {kCpu, 0};
}

}  // namespace detail

inline DataType to_data_type(frt_dtype dtype) {
  if (dtype >= FRT_DTYPE_COUNT || detail::kCodes[dtype] == detail::kNoCode) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                "tensor: element type " + std::to_string(dtype) + " has no DLPack form");
  }
  return {detail::kCodes[dtype], static_cast<uint8_t>(dtype_bits(dtype)), 1};
}

inline frt_dtype from_data_type(const DataType& type) {
  for (frt_dtype dtype = FRT_DTYPE_NONE + 1; dtype < FRT_DTYPE_COUNT && type.lanes == 1; ++dtype) {
    if (detail::kCodes[dtype] == type.code && dtype_bits(dtype) == type.bits) return dtype;
  }
  throw Error(FRT_ERR_UNSUPPORTED, "tensor: DLPack element type (code " +
                                       std::to_string(type.code) + ", " +
                                       std::to_string(type.bits) + " bits, " +
                                       std::to_string(type.lanes) + " lanes) is not supported");
}

// ---- export --------------------------------------------------------------------------------

// The first bytes of `buffer` as a row-major tensor. The result keeps the buffer alive; whoever
// gets it calls its deleter once, where a [setup] call of the context is allowed.  [setup]
inline ManagedTensor* export_buffer(const Buffer& buffer, frt_dtype dtype,
                                    std::span<const int64_t> shape, bool read_only = false) {
  struct Holder {
    ManagedTensor managed{};
    Buffer buffer;
    std::vector<int64_t> shape, strides;
  };
  const DataType type = to_data_type(dtype);
  const uint64_t bytes = detail::packed_bytes(shape, type.bits);
  if (bytes > buffer.bytes()) {
    throw Error(FRT_ERR_OUT_OF_RANGE, std::string("buffer '") + buffer.name() + "' has " +
                                          std::to_string(buffer.bytes()) +
                                          " bytes, the tensor needs " + std::to_string(bytes));
  }
  auto holder = std::make_unique<Holder>();
  holder->shape.assign(shape.begin(), shape.end());
  holder->strides.resize(shape.size());
  uint64_t stride = 1;  // may wrap when another size is 0; nobody steps by it then
  for (std::size_t i = shape.size(); i-- > 0;) {
    holder->strides[i] = static_cast<int64_t>(stride);
    stride *= static_cast<uint64_t>(shape[i]);
  }
  ManagedTensor& managed = holder->managed;
  managed.version = {kMajor, kMinor};
  managed.manager_ctx = holder.get();
  managed.deleter = [](ManagedTensor* self) { delete static_cast<Holder*>(self->manager_ctx); };
  managed.flags = read_only ? kReadOnly : 0;
  managed.tensor.data = bytes ? buffer.pointer() : nullptr;
  managed.tensor.device = detail::device_of(*buffer.context().info().device, buffer.space());
  managed.tensor.ndim = static_cast<int32_t>(shape.size());
  managed.tensor.dtype = type;
  managed.tensor.shape = holder->shape.data();
  managed.tensor.strides = holder->strides.data();
  holder->buffer = Buffer::retain(buffer.context(), buffer.handle());
  return &holder.release()->managed;
}

// ---- import --------------------------------------------------------------------------------

struct Imported {
  Buffer buffer;  // calls the tensor's deleter when its last owner goes
  frt_dtype dtype = FRT_DTYPE_NONE;
  std::vector<int64_t> shape;
  bool read_only = false;
};

// Wraps a row-major tensor that lies on the context's device or in host memory. Takes the tensor
// over in any case: on failure its deleter was called. Throws FRT_ERR_ABI (another major
// version), FRT_ERR_MISMATCH (another device), FRT_ERR_UNSUPPORTED (strides, element type),
// FRT_ERR_INVALID_ARGUMENT (empty or null).  [setup]
inline Imported import_tensor(const Context& context, ManagedTensor* managed,
                              const std::string& name) {
  if (!managed) throw Error(FRT_ERR_INVALID_ARGUMENT, "tensor '" + name + "': null");
  const auto drop = [](ManagedTensor* self) {
    if (self->deleter) self->deleter(self);
  };
  std::unique_ptr<ManagedTensor, decltype(drop)> owner(managed, drop);
  const std::string what = "tensor '" + name + "': ";
  if (managed->version.major != kMajor) {
    throw Error(FRT_ERR_ABI, what + "DLPack " + std::to_string(managed->version.major) +
                                 ".x, expected " + std::to_string(kMajor) + ".x");
  }
  const Tensor& tensor = managed->tensor;
  Imported result;
  result.dtype = from_data_type(tensor.dtype);
  result.read_only = (managed->flags & kReadOnly) != 0;
  if (tensor.ndim < 0 || (tensor.ndim > 0 && !tensor.shape)) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, what + "no shape");
  }
  result.shape.assign(tensor.shape, tensor.shape + tensor.ndim);
  const uint64_t bytes = detail::packed_bytes(result.shape, tensor.dtype.bits);
  if (bytes == 0 || !tensor.data) throw Error(FRT_ERR_INVALID_ARGUMENT, what + "it is empty");
  uint64_t stride = 1;
  for (std::size_t i = result.shape.size(); tensor.strides && i-- > 0;) {
    if (result.shape[i] != 1 && static_cast<uint64_t>(tensor.strides[i]) != stride) {
      throw Error(FRT_ERR_UNSUPPORTED, what + "not row-major; make it contiguous first");
    }
    stride *= static_cast<uint64_t>(result.shape[i]);
  }
  const frt_device_info& device = *context.info().device;
  frt_space space = FRT_SPACE_COUNT;
  for (const frt_space candidate :
       {FRT_SPACE_DEVICE, FRT_SPACE_HOST_PINNED, FRT_SPACE_HOST, FRT_SPACE_SHARED}) {
    const Device expected = detail::device_of(device, candidate);
    if (expected.type != tensor.device.type || expected.id != tensor.device.id) continue;
    space = candidate;
    break;
  }
  if (space == FRT_SPACE_COUNT) {
    throw Error(FRT_ERR_MISMATCH, what + "it lies on DLPack device (" +
                                      std::to_string(tensor.device.type) + ", " +
                                      std::to_string(tensor.device.id) +
                                      "), neither on this context's device nor in host memory");
  }
  const auto release = [](void* user) {
    auto* self = static_cast<ManagedTensor*>(user);
    if (self->deleter) self->deleter(self);
  };
  result.buffer = context.wrap(space, static_cast<std::byte*>(tensor.data) + tensor.byte_offset,
                               bytes, name, release, managed);
  (void)owner.release();
  return result;
}

}  // namespace frt::dlpack
