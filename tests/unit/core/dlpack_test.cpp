// SPDX-License-Identifier: Apache-2.0
#include <frt/dlpack.hpp>

#include "rig.hpp"

namespace dlpack = frt::dlpack;

TEST_CASE("a buffer goes out as a tensor and comes back, with the same memory and values") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  frt::Buffer buffer = rig.context.alloc(FRT_SPACE_DEVICE, 24, "values");
  buffer.upload(std::vector<float>{1, 2, 3, 4, 5, 6}, stream);
  const int64_t shape[] = {2, 3};
  dlpack::ManagedTensor* tensor = dlpack::export_buffer(buffer, FRT_DTYPE_F32, shape, true);
  CHECK(tensor->version.major == 1);
  CHECK(tensor->flags == dlpack::kReadOnly);
  CHECK(tensor->tensor.data == buffer.pointer());
  CHECK(tensor->tensor.device.type == dlpack::kCpu);
  CHECK(tensor->tensor.device.id == 0);
  CHECK(tensor->tensor.ndim == 2);
  CHECK(tensor->tensor.dtype.code == 2);
  CHECK(tensor->tensor.dtype.bits == 32);
  CHECK(tensor->tensor.strides[0] == 3);
  CHECK(tensor->tensor.strides[1] == 1);
  buffer.reset();
  CHECK(rig.mock.live_blocks == 1);  // the tensor keeps it
  {
    const dlpack::Imported back = dlpack::import_tensor(rig.context, tensor, "back");
    CHECK(back.dtype == FRT_DTYPE_F32);
    CHECK(back.shape == std::vector<int64_t>{2, 3});
    CHECK(back.read_only);
    CHECK(back.buffer.space() == FRT_SPACE_DEVICE);
    CHECK(back.buffer.download<float>(6, stream) == std::vector<float>{1, 2, 3, 4, 5, 6});
  }
  CHECK(rig.mock.live_blocks == 0);
}

TEST_CASE("every element type goes to DLPack and back") {
  for (frt_dtype dtype = 1; dtype < FRT_DTYPE_COUNT; ++dtype) {
    CHECK(dlpack::from_data_type(dlpack::to_data_type(dtype)) == dtype);
  }
  CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT, "no DLPack form",
              (void)dlpack::to_data_type(FRT_DTYPE_NONE));
  CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT, "no DLPack form", (void)dlpack::to_data_type(99));
  CHECK_FAILS(FRT_ERR_UNSUPPORTED, "code 5", (void)dlpack::from_data_type({5, 64, 1}));
  CHECK_FAILS(FRT_ERR_UNSUPPORTED, "4 lanes", (void)dlpack::from_data_type({2, 32, 4}));
}

TEST_CASE("sub-byte tensors count their packed bytes") {
  Rig rig;
  const frt::Buffer buffer = rig.context.alloc(FRT_SPACE_HOST, 8, "fp4");
  const int64_t fits[] = {5, 3}, too_much[] = {17};
  dlpack::ManagedTensor* tensor = dlpack::export_buffer(buffer, FRT_DTYPE_F4_E2M1, fits);
  tensor->deleter(tensor);
  CHECK_FAILS(FRT_ERR_OUT_OF_RANGE, "needs 9",
              (void)dlpack::export_buffer(buffer, FRT_DTYPE_F4_E2M1, too_much));
}

TEST_CASE("shapes that overflow or are negative are refused") {
  Rig rig;
  const frt::Buffer buffer = rig.context.alloc(FRT_SPACE_HOST, 8, "b");
  const int64_t negative[] = {-1}, huge[] = {INT64_MAX, INT64_MAX}, none[] = {0, INT64_MAX, 4};
  CHECK_FAILS(FRT_ERR_OUT_OF_RANGE, "negative",
              (void)dlpack::export_buffer(buffer, FRT_DTYPE_U8, negative));
  CHECK_FAILS(FRT_ERR_OUT_OF_RANGE, "overflows",
              (void)dlpack::export_buffer(buffer, FRT_DTYPE_U8, huge));
  dlpack::ManagedTensor* empty = dlpack::export_buffer(buffer, FRT_DTYPE_U8, none);
  CHECK(empty->tensor.data == nullptr);
  CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT, "empty",
              (void)dlpack::import_tensor(rig.context, empty, "empty"));
}

TEST_CASE("a tensor that cannot be imported is given back through its deleter") {
  Rig rig;
  struct Foreign {
    dlpack::ManagedTensor managed{};
    int64_t shape[2] = {2, 4}, strides[2] = {4, 1};
    alignas(8) float data[8] = {};
    int deleted = 0;
  } foreign;
  dlpack::Tensor& tensor = foreign.managed.tensor;
  foreign.managed.version = {1, 9};
  foreign.managed.manager_ctx = &foreign;
  foreign.managed.deleter = [](dlpack::ManagedTensor* self) {
    ++static_cast<Foreign*>(self->manager_ctx)->deleted;
  };
  tensor = {foreign.data, {dlpack::kCpu, 0}, 2, {2, 32, 1}, foreign.shape, foreign.strides, 0};
  frt_status status = FRT_OK;
  SUBCASE("another major version") {
    foreign.managed.version.major = 2;
    status = FRT_ERR_ABI;
  }
  SUBCASE("another device") {
    tensor.device = {dlpack::kCuda, 0};
    status = FRT_ERR_MISMATCH;
  }
  SUBCASE("another device number") {
    tensor.device.id = 3;
    status = FRT_ERR_MISMATCH;
  }
  SUBCASE("strides that are not row-major") {
    foreign.strides[0] = 8;
    status = FRT_ERR_UNSUPPORTED;
  }
  SUBCASE("an unknown element type") {
    tensor.dtype.code = 200;
    status = FRT_ERR_UNSUPPORTED;
  }
  SUBCASE("no data") {
    tensor.data = nullptr;
    status = FRT_ERR_INVALID_ARGUMENT;
  }
  SUBCASE("no shape") {
    tensor.shape = nullptr;
    status = FRT_ERR_INVALID_ARGUMENT;
  }
  SUBCASE("a good one, with an offset") {
    tensor.byte_offset = 8;
    foreign.shape[0] = 1;
    foreign.strides[0] = 77;  // of a dimension of size 1: means nothing
    const dlpack::Imported imported =
        dlpack::import_tensor(rig.context, &foreign.managed, "theirs");
    CHECK(imported.buffer.pointer<float>() == foreign.data + 2);
    CHECK(imported.buffer.bytes() == 16);
    CHECK(foreign.deleted == 0);
  }
  if (status != FRT_OK) {
    CHECK(caught([&] {
            (void)dlpack::import_tensor(rig.context, &foreign.managed, "theirs");
          }).code == status);
  }
  CHECK(foreign.deleted == 1);
  CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT, "null",
              (void)dlpack::import_tensor(rig.context, nullptr, "null"));
}
