// SPDX-License-Identifier: Apache-2.0
// Recording, what a recording refuses, launches, foreign executables, compositions.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <algorithm>

#include "cuda_device.hpp"

using namespace frt::cuda_test;
using frt::check;

namespace {

// What steps of `adds` leave of `value`.
uint32_t stepped(uint32_t value, const std::vector<uint32_t>& adds) {
  for (const uint32_t add : adds) value = value * 3 + add;
  return value;
}

// capture_end, which must fail; its message.
std::string failed_end(CudaDevice& device, frt_backend_stream stream, frt_status expected) {
  frt_backend_exec exec = nullptr;
  frt_error error{};
  CHECK(device.backend().capture_end(stream, &exec, &error) == expected);
  CHECK(exec == nullptr);
  return error.message;
}

}  // namespace

TEST_CASE("recording: replays compute what the eager sequence does, on any stream") {
  FRT_NEEDS_DEVICE();
  CudaDevice device;
  const StreamHandle stream = device.stream();
  const StreamHandle other = device.stream(-1);
  uint32_t* value = device.allocate(1);
  const auto sequence = [&](frt_backend_stream where) {
    for (uint32_t add = 1; add <= 5; ++add) device.step(where, value, add, add == 2 ? 300 : 0);
  };
  const std::vector<uint32_t> adds = {1, 2, 3, 4, 5};
  const ExecHandle exec = device.capture(stream, [&] { sequence(stream); });
  CHECK(device.backend().exec_node_count(exec) == 5);
  device.fill(stream, value, 4, 0);
  sequence(stream);
  const uint32_t once = stepped(0, adds);
  CHECK(device.read(stream, value, 1)[0] == once);
  device.launch(exec, stream);
  CHECK(device.read(stream, value, 1)[0] == stepped(once, adds));
  // Launches on two streams do not overlap, and keep the order of submission.
  uint32_t expected = stepped(once, adds);
  for (int i = 0; i < 20; ++i) {
    device.launch(exec, i % 2 ? stream : other);
    expected = stepped(expected, adds);
  }
  device.sync(other);
  CHECK(device.read(stream, value, 1)[0] == expected);
  const ExecHandle empty = device.capture(stream, [] {});
  device.launch(empty, stream);
  device.sync(stream);
  CHECK(device.backend().exec_node_count(empty) == 0);
}

TEST_CASE("recording: what it refuses leaves the stream usable") {
  FRT_NEEDS_DEVICE();
  CudaDevice device;
  const auto& backend = device.backend();
  const StreamHandle stream = device.stream();
  const StreamHandle other = device.stream();
  uint32_t* value = device.allocate(1);
  device.fill(stream, value, 4, 0);
  device.sync(stream);
  uint32_t expected = 0;
  const auto still_usable = [&] {
    device.step(stream, value, 1);
    expected = expected * 3 + 1;
    CHECK(device.read(stream, value, 1)[0] == expected);
    const ExecHandle exec = device.capture(stream, [&] { device.step(stream, value, 2); });
    device.launch(exec, stream);
    expected = expected * 3 + 2;
    CHECK(device.read(stream, value, 1)[0] == expected);
  };
  const ExecHandle part = device.capture(stream, [&] { device.step(stream, value, 9); });
  const EventHandle recorded = device.event();
  check(backend.event_record(recorded, other), "event_record");
  frt_error error{};

  const auto begin = [&] { check(backend.capture_begin(stream, &error), error); };
  begin();
  CHECK(backend.capture_begin(stream, &error) == FRT_ERR_BAD_STATE);
  CHECK(backend.stream_sync(stream) == FRT_ERR_BAD_STATE);
  CHECK(failed_end(device, stream, FRT_ERR_BAD_STATE).find("asked to wait") != std::string::npos);
  still_usable();
  begin();
  CHECK(backend.exec_launch(part, stream) == FRT_ERR_BAD_STATE);
  failed_end(device, stream, FRT_ERR_BAD_STATE);
  still_usable();
  begin();
  CHECK(backend.event_wait(recorded, stream) == FRT_ERR_BAD_STATE);
  failed_end(device, stream, FRT_ERR_BAD_STATE);
  still_usable();
  begin();
  CHECK(backend.event_record(recorded, stream) == FRT_ERR_BAD_STATE);
  CHECK(failed_end(device, stream, FRT_ERR_BAD_STATE).find("recorded") != std::string::npos);
  still_usable();
  CHECK(backend.event_sync(recorded) == FRT_OK);  // still the record of the other stream
  begin();
  device.step(stream, value, 5);
  backend.capture_abort(stream);
  backend.capture_abort(stream);  // nothing to drop: fine
  still_usable();
  CHECK(failed_end(device, stream, FRT_ERR_BAD_STATE).find("not capturing") != std::string::npos);

  // CUDA itself declares the capture invalid.
  begin();
  CHECK(cudaStreamSynchronize(static_cast<cudaStream_t>(backend.stream_native(stream))) !=
        cudaSuccess);
  cudaGetLastError();
  CHECK(!failed_end(device, stream, FRT_ERR_BAD_STATE).empty());
  still_usable();

  // Other streams go on meanwhile, and memory may be had.
  begin();
  device.step(other, device.allocate(1), 1);
  device.sync(other);
  backend.capture_abort(stream);
  still_usable();
}

TEST_CASE("recording: an operator that forks must join") {
  FRT_NEEDS_DEVICE();
  CudaDevice device;
  const StreamHandle stream = device.stream();
  uint32_t* value = device.allocate(1);
  device.fill(stream, value, 4, 0);
  ForkArgs fork;
  fork.value = value;
  frt_error error{};
  check(device.backend().capture_begin(stream, &error), error);
  device.run(stream, kFork, fork);
  CHECK(failed_end(device, stream, FRT_ERR_BAD_STATE).find("Unjoined") != std::string::npos);
  fork.join = 1;
  const ExecHandle exec = device.capture(stream, [&] { device.run(stream, kFork, fork); });
  device.launch(exec, stream);
  device.launch(exec, stream);
  CHECK(device.read(stream, value, 1)[0] == 4);
}

TEST_CASE("executables of others: launched, owned or not, and never composed") {
  FRT_NEEDS_DEVICE();
  CudaDevice device;
  const auto& backend = device.backend();
  const StreamHandle stream = device.stream();
  auto* native = static_cast<cudaStream_t>(backend.stream_native(stream));
  uint32_t* value = device.allocate(1);
  for (const uint32_t owned : {0u, 1u}) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t foreign = nullptr;
    REQUIRE(cudaStreamBeginCapture(native, cudaStreamCaptureModeRelaxed) == cudaSuccess);
    REQUIRE(cudaMemsetAsync(value, 3, 4, native) == cudaSuccess);
    REQUIRE(cudaStreamEndCapture(native, &graph) == cudaSuccess);
    REQUIRE(cudaGraphInstantiate(&foreign, graph, 0) == cudaSuccess);
    frt_backend_exec raw = nullptr;
    frt_error error{};
    check(backend.exec_adopt(device.handle(), foreign, owned, &raw, &error), error);
    {
      const ExecHandle exec(raw, backend.exec_destroy);
      device.fill(stream, value, 4, 0);
      device.launch(exec, stream);
      CHECK(device.read(stream, value, 1)[0] == 0x03030303);
      CHECK(backend.exec_node_count(exec) == 0);
      const frt_backend_node node{exec, nullptr, 0, 0};
      frt_backend_exec composed = nullptr;
      CHECK(backend.exec_compose(device.handle(), &node, 1, &composed, &error) ==
            FRT_ERR_UNSUPPORTED);
    }
    if (!owned) CHECK(cudaGraphExecDestroy(foreign) == cudaSuccess);
    cudaGraphDestroy(graph);
  }
  frt_backend_exec raw = nullptr;
  frt_error error{};
  CHECK(backend.exec_adopt(device.handle(), nullptr, 0, &raw, &error) == FRT_ERR_INVALID_ARGUMENT);
}

TEST_CASE("compositions: what the parts do one by one, in an order that respects the edges") {
  FRT_NEEDS_DEVICE();
  CudaDevice device;
  const StreamHandle stream = device.stream();
  // Part i folds the cells of those before it into cell i: cell = sum over steps of a chain.
  constexpr uint32_t kParts = 24;
  uint32_t* cells = device.allocate(kParts);
  std::vector<ExecHandle> parts;
  std::vector<std::vector<uint32_t>> after(kParts);
  std::vector<frt_backend_node> nodes;
  uint32_t random = 7;
  const auto next = [&](uint32_t limit) {
    random = random * 1664525u + 1013904223u;
    return (random >> 16) % limit;
  };
  for (uint32_t i = 0; i < kParts; ++i) {
    for (uint32_t k = 0; i > 0 && k < 2; ++k) after[i].push_back(next(i));
    parts.push_back(device.capture(stream, [&] {
      // The copy must see what the part before made of its cell, not what was there.
      if (i > 0) {
        device.copy(stream, cells + i, FRT_SPACE_DEVICE, cells + after[i][0], FRT_SPACE_DEVICE, 4);
      }
      device.step(stream, cells + i, i + 1, next(3) * 40);
    }));
  }
  // Handed over in another order than they run in.
  std::vector<uint32_t> place(kParts);
  for (uint32_t i = 0; i < kParts; ++i) place[i] = (i * 7) % kParts;
  std::vector<std::vector<uint32_t>> placed_after(kParts);
  nodes.resize(kParts);
  for (uint32_t i = 0; i < kParts; ++i) {
    for (const uint32_t before : after[i]) placed_after[place[i]].push_back(place[before]);
    nodes[place[i]] = {parts[i], placed_after[place[i]].data(),
                       static_cast<uint32_t>(placed_after[place[i]].size()), 0};
  }
  const ExecHandle fused = device.compose(nodes);
  CHECK(device.backend().exec_node_count(fused) == 2 * kParts - 1);
  device.fill(stream, cells, 4 * kParts, 1);
  for (const ExecHandle& part : parts) device.launch(part, stream);
  const auto expected = device.read(stream, cells, kParts);
  for (int round = 0; round < 5; ++round) {
    device.fill(stream, cells, 4 * kParts, 1);
    device.launch(fused, stream);
    CHECK(device.read(stream, cells, kParts) == expected);
  }
}

TEST_CASE("compositions: one part several times, and what is refused") {
  FRT_NEEDS_DEVICE();
  CudaDevice device;
  CudaDevice second;  // of the same card, but another opening
  const auto& backend = device.backend();
  const StreamHandle stream = device.stream();
  uint32_t* value = device.allocate(1);
  const ExecHandle part = device.capture(stream, [&] { device.step(stream, value, 1, 200); });
  const ExecHandle fused =
      device.compose({{part, nullptr, 0, 0}, {part, nullptr, 0, 0}, {part, nullptr, 0, 0}});
  device.fill(stream, value, 4, 0);
  device.launch(fused, stream);
  CHECK(device.read(stream, value, 1)[0] == 13);

  const auto refusal = [&](frt_backend_device where, const std::vector<frt_backend_node>& nodes) {
    frt_backend_exec exec = nullptr;
    frt_error error{};
    const frt_status status = backend.exec_compose(
        where, nodes.data(), static_cast<uint32_t>(nodes.size()), &exec, &error);
    CHECK(error.message[0] != '\0');
    return status;
  };
  const uint32_t zero = 0;
  const uint32_t one = 1;
  const uint32_t nine = 9;
  CHECK(refusal(device.handle(), {{part, &one, 1, 0}, {part, &zero, 1, 0}}) == FRT_ERR_CYCLE);
  CHECK(refusal(device.handle(), {{part, &nine, 1, 0}}) == FRT_ERR_OUT_OF_RANGE);
  CHECK(refusal(device.handle(), {{nullptr, nullptr, 0, 0}}) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(refusal(device.handle(), {{part, nullptr, 1, 0}}) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(refusal(second.handle(), {{part, nullptr, 0, 0}}) == FRT_ERR_MISMATCH);
  const StreamHandle elsewhere = second.stream();
  CHECK(backend.exec_launch(part, elsewhere) == FRT_ERR_MISMATCH);
  StepArgs args;
  args.value = value;
  CHECK(device.try_run(elsewhere, kStep, args) == FRT_ERR_MISMATCH);
}
