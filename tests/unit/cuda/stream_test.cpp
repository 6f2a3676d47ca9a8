// SPDX-License-Identifier: Apache-2.0
// Streams of our own and of others, calls of the host in stream order, events.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <string>

#include "cuda_device.hpp"

using namespace frt::cuda_test;
using frt::check;

TEST_CASE("streams: priorities are clamped to what the device has") {
  FRT_NEEDS_DEVICE();
  CudaDevice device;
  int least = 0;
  int greatest = 0;
  REQUIRE(cudaDeviceGetStreamPriorityRange(&least, &greatest) == cudaSuccess);
  const std::pair<int32_t, int> expected[] = {
      {-1000, greatest}, {-1, std::max(-1, greatest)}, {0, 0}, {1, least}, {1000, least}};
  for (const auto& [asked, given] : expected) {
    const StreamHandle stream = device.stream(asked);
    int priority = 99;
    auto* native = static_cast<cudaStream_t>(device.backend().stream_native(stream));
    REQUIRE(cudaStreamGetPriority(native, &priority) == cudaSuccess);
    CHECK(priority == given);
  }
}

TEST_CASE("streams: what CUDA said of a call that failed is told once, with its code") {
  FRT_NEEDS_DEVICE();
  CudaDevice device;
  const auto& backend = device.backend();
  const StreamHandle stream = device.stream();
  uint32_t* value = device.allocate(1);
  char text[64] = "x";
  CHECK(backend.last_error(device.handle(), text, sizeof(text)) == FRT_OK);
  CHECK(std::string(text).empty());
  // More bytes than any allocation has.
  REQUIRE(backend.fill(stream, value, FRT_SPACE_DEVICE, uint64_t{1} << 50, 0) == FRT_ERR_DEVICE);
  CHECK(backend.last_error(device.handle(), text, sizeof(text)) == FRT_ERR_DEVICE);
  CHECK_MESSAGE(std::string(text).ends_with("(cudaErrorInvalidValue)"), text);
  CHECK(backend.last_error(device.handle(), text, sizeof(text)) == FRT_OK);
  // The device goes on, and what a host function returns has words, too.
  device.fill(stream, value, 4, 0);
  check(backend.stream_call(
            stream,
            [](void*, frt_error* error) { return frt::set_error(error, FRT_ERR_IO, "no paper"); },
            nullptr),
        "stream_call");
  CHECK(backend.stream_sync(stream) == FRT_ERR_CALLBACK);
  CHECK(backend.last_error(device.handle(), text, sizeof(text)) == FRT_ERR_CALLBACK);
  CHECK(std::string(text) == "no paper");
  device.sync(stream);
}

TEST_CASE("streams: somebody else's, and the default one") {
  FRT_NEEDS_DEVICE();
  CudaDevice device;
  cudaStream_t foreign = nullptr;
  REQUIRE(cudaStreamCreate(&foreign) == cudaSuccess);
  uint32_t* value = device.allocate(1);
  for (void* native : {static_cast<void*>(foreign), static_cast<void*>(nullptr)}) {
    const StreamHandle stream = device.wrap(native);
    CHECK(device.backend().stream_native(stream) == native);
    device.fill(stream, value, 4, 0);
    device.step(stream, value, 5, 200);
    device.step(stream, value, 6);
    CHECK(device.read(stream, value, 1)[0] == 21);
  }
  CHECK(cudaStreamSynchronize(foreign) == cudaSuccess);  // it is still there
  const StreamHandle fallback = device.wrap(nullptr);
  frt_error error{};
  CHECK(device.backend().capture_begin(fallback, &error) != FRT_OK);
  CHECK(std::string(error.message).find("default stream") != std::string::npos);
  device.step(fallback, value, 1);
  CHECK(device.read(fallback, value, 1)[0] == 64);
  {
    const StreamHandle wrapped = device.wrap(foreign);
    const ExecHandle exec = device.capture(wrapped, [&] { device.step(wrapped, value, 0); });
    device.launch(exec, fallback);
    CHECK(device.read(fallback, value, 1)[0] == 192);
  }
  CHECK(cudaStreamDestroy(foreign) == cudaSuccess);
}

TEST_CASE("launches: shared memory that is declared and that is added count together") {
  FRT_NEEDS_DEVICE();
  CudaDevice device;
  const StreamHandle stream = device.stream();
  uint32_t* value = device.allocate(1);
  // Up to 48 KB in all, just beyond, far beyond, and back.
  for (const uint32_t kilobytes : {0, 24, 25, 40, 70, 8}) {
    SharedArgs args;
    args.dynamic_bytes = kilobytes * 1024;
    args.value = value;
    device.run(stream, kShared, args);
    const uint32_t count = 6144 + kilobytes * 256;
    CHECK(device.read(stream, value, 1)[0] == count * (count + 1) / 2);
  }
}

TEST_CASE("streams: what its owner captures takes no memory, call or copy between devices") {
  FRT_NEEDS_DEVICE();
  CudaDevice device;
  cudaStream_t foreign = nullptr;
  REQUIRE(cudaStreamCreate(&foreign) == cudaSuccess);
  {
    const StreamHandle stream = device.wrap(foreign);
    ThroughScratchArgs args;
    args.count = 4;
    args.out = device.allocate(4);
    const StreamHandle own = device.stream();
    const uint32_t* source = device.allocate(4);
    REQUIRE(cudaStreamBeginCapture(foreign, cudaStreamCaptureModeRelaxed) == cudaSuccess);
    frt_error error{};
    CHECK(device.try_run(stream, kThroughScratch, args, &error) == FRT_ERR_BAD_STATE);
    CHECK(std::string(error.message).find("captured by its owner") != std::string::npos);
    const auto call = [](void*, frt_error*) { return frt_status{FRT_OK}; };
    CHECK(device.backend().stream_call(stream, call, nullptr) == FRT_ERR_BAD_STATE);
    const auto copy_peer = device.backend().copy_peer;
    CHECK(copy_peer(stream, args.out, own, source, 4) == FRT_ERR_BAD_STATE);
    CHECK(copy_peer(own, args.out, stream, source, 4) == FRT_ERR_BAD_STATE);
    device.step(stream, args.out, 1);  // needs neither
    cudaGraph_t graph = nullptr;
    REQUIRE(cudaStreamEndCapture(foreign, &graph) == cudaSuccess);
    REQUIRE(cudaGraphDestroy(graph) == cudaSuccess);
    device.run(stream, kThroughScratch, args);
    CHECK(copy_peer(own, args.out, stream, source, 4) == FRT_OK);
    device.sync(stream);
    device.sync(own);
  }
  CHECK(cudaStreamDestroy(foreign) == cudaSuccess);
}

TEST_CASE("streams: calls of the host come in stream order, and may fail") {
  FRT_NEEDS_DEVICE();
  CudaDevice device;
  const auto& backend = device.backend();
  const StreamHandle stream = device.stream();
  auto* value = device.allocate(1, FRT_SPACE_HOST_PINNED);
  *value = 1;
  const auto add_ten = [](void* user, frt_error*) {
    *static_cast<uint32_t*>(user) += 10;
    return frt_status{FRT_OK};
  };
  device.step(stream, value, 1, 300);
  check(backend.stream_call(stream, add_ten, value), "stream_call");
  device.step(stream, value, 2);
  device.sync(stream);
  CHECK(*value == 44);
  const ExecHandle exec = device.capture(stream, [&] {
    device.step(stream, value, 0, 100);
    check(backend.stream_call(stream, add_ten, value), "stream_call");
  });
  CHECK(*value == 44);
  for (int i = 0; i < 3; ++i) device.launch(exec, stream);
  device.sync(stream);
  CHECK(*value == ((44 * 3 + 10) * 3 + 10) * 3 + 10);

  const auto fail = [](void*, frt_error* error) {
    return frt::set_error(error, FRT_ERR_IO, "of the test");
  };
  check(backend.stream_call(stream, fail, nullptr), "stream_call");
  CHECK(backend.stream_sync(stream) == FRT_ERR_CALLBACK);
  CHECK(backend.stream_sync(stream) == FRT_OK);
  CHECK(backend.stream_call(stream, nullptr, nullptr) == FRT_ERR_INVALID_ARGUMENT);
}

TEST_CASE("events: state, order between streams, time") {
  FRT_NEEDS_DEVICE();
  CudaDevice device;
  const auto& backend = device.backend();
  const StreamHandle first = device.stream();
  const StreamHandle second = device.stream();
  const EventHandle event = device.event();
  const EventHandle start = device.event(FRT_EVENT_TIMING);
  const EventHandle end = device.event(FRT_EVENT_TIMING);
  double ms = -1;
  CHECK(backend.event_query(event) == FRT_OK);  // never recorded
  CHECK(backend.event_wait(event, first) == FRT_OK);
  CHECK(backend.event_elapsed(start, end, &ms) == FRT_ERR_BAD_STATE);
  CHECK(backend.event_elapsed(event, end, &ms) == FRT_ERR_INVALID_ARGUMENT);

  uint32_t* value = device.allocate(1);
  device.fill(first, value, 4, 0);
  device.sync(first);
  {
    Gate gate(device, first);
    check(backend.event_record(start, first), "event_record");
    device.step(first, value, 7, 2000);
    check(backend.event_record(end, first), "event_record");
    check(backend.event_record(event, first), "event_record");
    check(backend.event_wait(event, second), "event_wait");
    device.step(second, value, 1);
    CHECK(backend.event_query(event) == FRT_ERR_NOT_READY);
    CHECK(backend.event_elapsed(start, end, &ms) == FRT_ERR_NOT_READY);
    gate.open();
    CHECK(backend.event_sync(event) == FRT_OK);
    CHECK(backend.event_query(event) == FRT_OK);
    CHECK(backend.event_elapsed(start, end, &ms) == FRT_OK);
    CHECK(ms >= 2.0);
    CHECK(ms < 500.0);
  }
  CHECK(device.read(second, value, 1)[0] == 22);

  frt_backend_event none = nullptr;
  frt_error error{};
  CHECK(backend.event_create(device.handle(), 8, &none, &error) == FRT_ERR_UNSUPPORTED);
}

TEST_CASE("devices: what they tell, and ordinals that do not exist") {
  FRT_NEEDS_DEVICE();
  const Plugin plugin;
  const auto& backend = plugin.backend();
  frt_device_info info{};
  info.struct_size = sizeof info;
  frt_error error{};
  REQUIRE(backend.device_info(plugin.handle(), 0, &info, &error) == FRT_OK);
  MESSAGE(info.name, ", ", info.architecture, ", driver ", info.driver, ", ", info.detail);
  CHECK(std::string(info.architecture).starts_with("sm_"));
  CHECK(info.dlpack_type == 2);
  CHECK(info.compute_units > 0);
  CHECK(info.memory_free > 0);
  CHECK(info.memory_free <= info.memory_total);
  CHECK(std::string(info.driver).find("CUDA 1") != std::string::npos);
  CHECK(backend.device_info(plugin.handle(), 99, &info, &error) == FRT_ERR_OUT_OF_RANGE);
  frt_backend_device device = nullptr;
  CHECK(backend.device_open(plugin.handle(), 99, nullptr, &device, &error) == FRT_ERR_OUT_OF_RANGE);
  CHECK(std::string(error.message).find("device 99 does not exist") != std::string::npos);
  CHECK(std::string(backend.native_kind) == "cuda");
}
