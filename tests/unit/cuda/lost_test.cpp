// SPDX-License-Identifier: Apache-2.0
// An error that destroys the context, in a process of its own: every call says so from then on,
// everything can still be taken apart, and the process ends normally.
#include <doctest/doctest.h>

#include "core_context.hpp"

using namespace frt::cuda_test;
using frt::check;

TEST_CASE("a lost device is reported by every call, and nothing crashes") {
  FRT_NEEDS_DEVICE();
  CudaDevice device;
  const auto& backend = device.backend();
  const StreamHandle stream = device.stream();
  const StreamHandle other = device.stream();
  const EventHandle event = device.event();
  const EventHandle start = device.event(FRT_EVENT_TIMING);
  uint32_t* value = device.allocate(1);
  device.allocate(1, FRT_SPACE_HOST_PINNED);
  device.through_scratch(stream, device.allocate(10), 10, 1, 0);
  device.sync(stream);
  const ExecHandle exec = device.capture(stream, [&] { device.step(stream, value, 1); });
  check(backend.event_record(start, stream), "event_record");
  check(backend.stream_sync(stream), "stream_sync");

  // Another opening of the device, as core holds it, learns it by itself.
  CoreContext core;
  const frt::Stream core_stream = core->create_stream("s");
  const frt::Buffer core_value = core->alloc(FRT_SPACE_DEVICE, 4, "value");
  frt::Graph graph = core->create_graph("g", 1);
  graph.capture(0, [&](const frt::Recorder& recorder) {
    StepArgs args;
    args.value = core_value.pointer<uint32_t>();
    core.step(recorder, args);
  });
  graph.replay(0, core_stream);
  core_stream.sync();

  device.run(stream, kFault, FaultArgs{});
  CHECK(backend.stream_sync(stream) == FRT_ERR_DEVICE_LOST);
  const auto words = [&] {
    char text[256] = "";
    CHECK(backend.last_error(device.handle(), text, sizeof(text)) == FRT_ERR_DEVICE_LOST);
    return std::string(text);
  };
  CHECK(words().find("(cudaErrorIllegalAddress)") != std::string::npos);
  // A later call tells the first error again.
  CHECK(backend.stream_sync(stream) == FRT_ERR_DEVICE_LOST);
  CHECK(words().find("(cudaErrorIllegalAddress)") != std::string::npos);

  frt_error error{};
  void* pointer = nullptr;
  for (const frt_space space : {FRT_SPACE_DEVICE, FRT_SPACE_HOST_PINNED, FRT_SPACE_HOST}) {
    CHECK(backend.memory_alloc(device.handle(), space, 256, &pointer, &error) ==
          FRT_ERR_DEVICE_LOST);
    const std::string text = error.message;
    CHECK_MESSAGE(text.find("cudaErrorIllegalAddress") != std::string::npos, text);
  }
  uint64_t bytes = 0;
  double ms = 0;
  uint32_t host = 0;
  const frt_backend_copy copy{value, &host, 4, FRT_SPACE_DEVICE, FRT_SPACE_HOST};
  const auto call = [](void*, frt_error*) { return frt_status{FRT_OK}; };
  frt_backend_stream new_stream = nullptr;
  frt_backend_event new_event = nullptr;
  frt_backend_exec new_exec = nullptr;
  const frt_backend_node node{exec, nullptr, 0, 0};
  StepArgs step;
  step.value = value;
  for (const frt_backend_stream where :
       {stream.operator frt_backend_stream(), other.operator frt_backend_stream()}) {
    CHECK(backend.stream_sync(where) == FRT_ERR_DEVICE_LOST);
    CHECK(backend.copy(where, &copy, 1) == FRT_ERR_DEVICE_LOST);
    CHECK(backend.fill(where, value, FRT_SPACE_DEVICE, 4, 0) == FRT_ERR_DEVICE_LOST);
    CHECK(backend.stream_call(where, call, nullptr) == FRT_ERR_DEVICE_LOST);
    CHECK(backend.event_record(event, where) == FRT_ERR_DEVICE_LOST);
    CHECK(backend.event_wait(event, where) == FRT_ERR_DEVICE_LOST);
    CHECK(backend.exec_launch(exec, where) == FRT_ERR_DEVICE_LOST);
    CHECK(backend.capture_begin(where, &error) == FRT_ERR_DEVICE_LOST);
    CHECK(device.try_run(where, kStep, step, &error) == FRT_ERR_DEVICE_LOST);
  }
  CHECK(backend.device_sync(device.handle()) == FRT_ERR_DEVICE_LOST);
  CHECK(backend.device_memory(device.handle(), &bytes, &bytes) == FRT_ERR_DEVICE_LOST);
  CHECK(backend.event_query(event) == FRT_ERR_DEVICE_LOST);
  CHECK(backend.event_sync(event) == FRT_ERR_DEVICE_LOST);
  CHECK(backend.event_elapsed(start, start, &ms) == FRT_ERR_DEVICE_LOST);
  CHECK(backend.stream_create(device.handle(), 0, &new_stream, &error) == FRT_ERR_DEVICE_LOST);
  CHECK(backend.stream_wrap(device.handle(), nullptr, &new_stream, &error) == FRT_ERR_DEVICE_LOST);
  CHECK(backend.event_create(device.handle(), 0, &new_event, &error) == FRT_ERR_DEVICE_LOST);
  CHECK(backend.exec_compose(device.handle(), &node, 1, &new_exec, &error) == FRT_ERR_DEVICE_LOST);

  frt_status replayed = graph.try_replay(0, core_stream);
  if (replayed == FRT_OK) replayed = core->table().stream_sync(core_stream);
  CHECK(replayed == FRT_ERR_DEVICE_LOST);
  CHECK(graph.try_replay(0, core_stream) == FRT_ERR_DEVICE_LOST);
  const std::string told = core->last_error();
  CHECK_MESSAGE(told.find("is lost (") != std::string::npos, told);
  CHECK_MESSAGE(told.find("(cudaErrorIllegalAddress)") != std::string::npos, told);
}
