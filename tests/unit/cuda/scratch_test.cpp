// SPDX-License-Identifier: Apache-2.0
// Executables of one stream share its scratch memory, so they must not overlap wherever they run.
// The operator of these tests writes scratch, pauses, and copies it out: an overlap would show.
#include <doctest/doctest.h>

#include <array>

#include "cuda_device.hpp"

using namespace frt::cuda_test;
using frt::check;

namespace {

constexpr uint32_t kCount = 20000;

void check_values(const std::vector<uint32_t>& values, uint32_t first) {
  uint32_t wrong = 0;
  for (uint32_t i = 0; i < values.size(); ++i) wrong += values[i] != first + i;
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("scratch: executables of one stream on several streams, and eager work in between") {
  FRT_NEEDS_DEVICE();
  CudaDevice device;
  constexpr uint32_t kStreams = 4;
  const StreamHandle recorder = device.stream();
  std::vector<StreamHandle> streams;
  std::vector<ExecHandle> execs;
  std::array<uint32_t*, kStreams> outs{};
  for (uint32_t i = 0; i < kStreams; ++i) {
    outs[i] = device.allocate(kCount);
    streams.push_back(device.stream());
    execs.push_back(device.capture(recorder, [&] {
      device.through_scratch(recorder, outs[i], kCount, 1000000 * (i + 1), 150);
    }));
  }
  uint32_t* eager = device.allocate(kCount);
  for (int round = 0; round < 10; ++round) {
    for (uint32_t i = 0; i < kStreams; ++i) device.launch(execs[i], streams[i]);
    device.through_scratch(recorder, eager, kCount, 77, 150);
    for (uint32_t i = 0; i < kStreams; ++i) device.launch(execs[i], streams[kStreams - 1 - i]);
    check(device.backend().device_sync(device.handle()), "device_sync");
    for (uint32_t i = 0; i < kStreams; ++i) {
      check_values(device.read(recorder, outs[i], kCount), 1000000 * (i + 1));
    }
    check_values(device.read(recorder, eager, kCount), 77);
  }
}

TEST_CASE("scratch: parts of a composition that share it do not overlap, others may") {
  FRT_NEEDS_DEVICE();
  CudaDevice device;
  constexpr uint32_t kParts = 6;
  std::array<StreamHandle, 2> recorders = {device.stream(), device.stream()};
  std::vector<ExecHandle> parts;
  std::vector<frt_backend_node> nodes;
  std::array<uint32_t*, kParts> outs{};
  for (uint32_t i = 0; i < kParts; ++i) {
    const StreamHandle& recorder = recorders[i % 2];
    outs[i] = device.allocate(kCount);
    parts.push_back(device.capture(recorder, [&] {
      device.through_scratch(recorder, outs[i], kCount, 1000000 * (i + 1), 200);
    }));
    nodes.push_back({parts[i], nullptr, 0, 0});
  }
  const ExecHandle fused = device.compose(nodes);
  for (int round = 0; round < 10; ++round) {
    device.launch(fused, recorders[0]);
    device.launch(parts[0], recorders[1]);  // shares a pool with the composition
    check(device.backend().device_sync(device.handle()), "device_sync");
    for (uint32_t i = 0; i < kParts; ++i) {
      check_values(device.read(recorders[0], outs[i], kCount), 1000000 * (i + 1));
      device.fill(recorders[0], outs[i], 4 * kCount, 0);
    }
    device.sync(recorders[0]);
  }
}

TEST_CASE("scratch: an executable keeps its block when the stream outgrows it, and outlives it") {
  FRT_NEEDS_DEVICE();
  CudaDevice device;
  constexpr uint32_t kLarge = 3u << 20;
  StreamHandle recorder = device.stream();
  const StreamHandle stream = device.stream();
  uint32_t* small_out = device.allocate(kCount);
  uint32_t* large_out = device.allocate(kLarge);
  const auto small_body = [&] { device.through_scratch(recorder, small_out, kCount, 5, 100); };
  const auto large_body = [&] { device.through_scratch(recorder, large_out, kLarge, 9, 100); };
  const ExecHandle small = device.capture(recorder, small_body);
  large_body();  // grows while the old block is in use by `small` only
  const ExecHandle large = device.capture(recorder, [&] {
    large_body();
    small_body();
  });
  device.sync(recorder);
  for (int round = 0; round < 5; ++round) {
    device.launch(small, stream);
    device.launch(large, recorder);
    device.launch(small, stream);
    check(device.backend().device_sync(device.handle()), "device_sync");
    check_values(device.read(stream, small_out, kCount), 5);
    check_values(device.read(stream, large_out, kLarge), 9);
    device.fill(stream, small_out, 4 * kCount, 0);
  }
  device.launch(small, recorder);
  device.sync(recorder);
  recorder.reset();
  device.fill(stream, small_out, 4 * kCount, 0);
  device.launch(small, stream);
  check_values(device.read(stream, small_out, kCount), 5);
}

TEST_CASE("scratch: the last user's stream may be recording, or gone") {
  FRT_NEEDS_DEVICE();
  CudaDevice device;
  StreamHandle recorder = device.stream();
  const StreamHandle stream = device.stream();
  uint32_t* first_out = device.allocate(kCount);
  uint32_t* second_out = device.allocate(kCount);
  const auto record = [&](uint32_t* out, uint32_t value) {
    return device.capture(recorder,
                          [&] { device.through_scratch(recorder, out, kCount, value, 300); });
  };
  const ExecHandle first = record(first_out, 1);
  const ExecHandle second = record(second_out, 2);
  device.launch(first, recorder);
  frt_error error{};
  check(device.backend().capture_begin(recorder, &error), error);
  device.launch(second, stream);  // behind `first`, though its stream is recording now
  check(device.backend().stream_sync(stream), "stream_sync");
  device.backend().capture_abort(recorder);
  check_values(device.read(stream, first_out, kCount), 1);
  check_values(device.read(stream, second_out, kCount), 2);
  device.launch(first, recorder);
  device.sync(recorder);
  recorder.reset();
  device.launch(second, stream);
  check_values(device.read(stream, second_out, kCount), 2);
}
