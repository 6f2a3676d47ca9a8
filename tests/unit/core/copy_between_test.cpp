// SPDX-License-Identifier: Apache-2.0
// Copies between two contexts: of two mocks whose progress the test controls.
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>

#include "rig.hpp"

namespace {

using Bytes = std::vector<uint8_t>;
constexpr uint64_t kStaged = 8 << 20;  // pinned memory of a staged copy

Bytes noise(std::size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

// One side: a context, a stream and a buffer with known content.
struct Side {
  Side(const RigOptions& options, frt_space space, uint64_t bytes, uint32_t seed)
      : rig(options),
        stream(rig.context.create_stream("s")),
        buffer(rig.context.alloc(space, bytes, "b")),
        content(noise(bytes, seed)) {
    buffer.upload(content, stream);
  }
  Bytes now() const { return buffer.download<uint8_t>(buffer.bytes(), stream); }

  Rig rig;
  frt::Stream stream;
  frt::Buffer buffer;
  Bytes content;
};

void copy(const Side& target, uint64_t target_offset, const Side& source, uint64_t source_offset,
          uint64_t bytes) {
  frt::copy_between(target.buffer, target_offset, target.stream, source.buffer, source_offset,
                    source.stream, bytes);
}

constexpr uint32_t kShared = FRT_DEVICE_SHARED_MEMORY;

}  // namespace

TEST_CASE("random ranges between two contexts arrive as memcpy would bring them, in every way") {
  constexpr uint64_t kBytes = 1000;
  std::mt19937 random(17);
  for (const bool peers : {false, true}) {
    for (frt_space from = 0; from < FRT_SPACE_COUNT; ++from) {
      for (frt_space to = 0; to < FRT_SPACE_COUNT; ++to) {
        CAPTURE(peers);
        CAPTURE(from);
        CAPTURE(to);
        const RigOptions options{
            .seed = static_cast<uint32_t>(random()), .device_flags = kShared, .peers = peers};
        const Side source(options, from, kBytes, 1), target(options, to, kBytes, 2);
        Bytes expected = target.content;
        for (int i = 0; i < 10; ++i) {
          const uint64_t bytes = random() % (kBytes + 1);
          const uint64_t at = random() % (kBytes - bytes + 1);
          const uint64_t source_at = random() % (kBytes - bytes + 1);
          copy(target, at, source, source_at, bytes);
          if (bytes) std::memcpy(&expected[at], &source.content[source_at], bytes);
        }
        CHECK(target.now() == expected);
        CHECK(source.now() == source.content);
        const bool device_alone = from == FRT_SPACE_DEVICE && to == FRT_SPACE_DEVICE;
        CHECK((target.rig.mock.calls("copy_peer") > 0) == (peers && device_alone));
        const uint64_t pinned = source.rig.counters().buffer_bytes[FRT_SPACE_HOST_PINNED];
        const uint64_t own = from == FRT_SPACE_HOST_PINNED ? kBytes : 0;
        CHECK(pinned - own == (device_alone && !peers ? kStaged : 0));
      }
    }
  }
}

TEST_CASE("a copy of more than the staging memory goes through it in turns") {
  constexpr uint64_t kBytes = (uint64_t{13} << 20) + 77;
  const Side source({}, FRT_SPACE_DEVICE, kBytes, 1), target({}, FRT_SPACE_DEVICE, kBytes, 2);
  copy(target, 5, source, 3, kBytes - 5);
  Bytes expected = target.content;
  std::memcpy(&expected[5], &source.content[3], kBytes - 5);
  const bool equal = target.now() == expected;
  CHECK(equal);
  CHECK(source.rig.counters().buffer_bytes[FRT_SPACE_HOST_PINNED] == kStaged);
  CHECK(target.rig.counters().buffer_bytes[FRT_SPACE_HOST_PINNED] == 0);
}

TEST_CASE("a copy comes behind earlier work of both streams and before later work") {
  for (const bool peers : {false, true}) {
    for (const frt_space space : {FRT_SPACE_DEVICE, FRT_SPACE_HOST}) {
      CAPTURE(peers);
      CAPTURE(space);
      const RigOptions options{.peers = peers};
      const Side source(options, space, 64, 1), target(options, FRT_SPACE_DEVICE, 64, 2);
      const frt::Recorder at_source(source.stream), at_target(target.stream);
      at_source.fill(source.buffer, 0, 64, 0x11);
      at_target.fill(target.buffer, 0, 64, 0x22);
      REQUIRE(source.rig.mock.pending() == 1);
      copy(target, 8, source, 0, 16);
      at_source.fill(source.buffer, 0, 64, 0x33);
      at_target.fill(target.buffer, 0, 4, 0x44);
      Bytes expected(64, 0x22);
      std::fill_n(expected.begin() + 8, 16, uint8_t{0x11});
      std::fill_n(expected.begin(), 4, uint8_t{0x44});
      CHECK(target.now() == expected);
      CHECK(source.now() == Bytes(64, 0x33));
    }
  }
}

TEST_CASE("within one context it is buffer_copy, also between two streams") {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    Rig rig({.seed = seed});
    const frt::Stream a = rig.context.create_stream("a"), b = rig.context.create_stream("b");
    const frt::Buffer buffer = rig.context.alloc(FRT_SPACE_DEVICE, 64, "b");
    frt::Recorder(a).fill(buffer, 0, 64, 0);
    a.sync();
    frt::Recorder(b).fill(buffer, 32, 16, 7);
    frt::copy_between(buffer, 0, a, buffer, 32, b, 16);
    frt::Recorder(b).fill(buffer, 32, 16, 9);
    Bytes expected(64, 0);
    std::fill_n(expected.begin(), 16, uint8_t{7});
    std::fill_n(expected.begin() + 32, 16, uint8_t{9});
    rig.context.sync();
    CHECK(buffer.download<uint8_t>(64, a) == expected);
    frt::copy_between(buffer, 16, a, buffer, 0, a, 16);
    std::fill_n(expected.begin() + 16, 16, uint8_t{7});
    CHECK(buffer.download<uint8_t>(64, a) == expected);
    CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT, "overlap",
                frt::copy_between(buffer, 0, a, buffer, 8, b, 16));
  }
}

TEST_CASE("what cannot be right is refused before anything is submitted") {
  const Side source({}, FRT_SPACE_DEVICE, 64, 1), target({}, FRT_SPACE_DEVICE, 64, 2);
  const int before = target.rig.mock.calls("copy") + source.rig.mock.calls("copy");
  CHECK_FAILS(FRT_ERR_OUT_OF_RANGE, "target: 16 bytes at 49", copy(target, 49, source, 0, 16));
  CHECK_FAILS(FRT_ERR_OUT_OF_RANGE, "source: 16 bytes at 18446744073709551615",
              copy(target, 0, source, UINT64_MAX, 16));
  CHECK_FAILS(FRT_ERR_OUT_OF_RANGE, "target", copy(target, 0, source, 0, UINT64_MAX));
  CHECK_FAILS(
      FRT_ERR_INVALID_ARGUMENT, "the stream is of another context",
      frt::copy_between(target.buffer, 0, source.stream, source.buffer, 0, source.stream, 1));
  CHECK_FAILS(
      FRT_ERR_INVALID_ARGUMENT, "the stream is of another context",
      frt::copy_between(target.buffer, 0, target.stream, source.buffer, 0, target.stream, 1));
  const frt_exec_v1& table = target.buffer.table();
  CHECK(table.buffer_copy_between(target.buffer, 0, nullptr, source.buffer, 0, source.stream, 1,
                                  nullptr) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(table.buffer_copy_between(nullptr, 0, target.stream, source.buffer, 0, source.stream, 1,
                                  nullptr) == FRT_ERR_INVALID_ARGUMENT);
  copy(target, 64, source, 64, 0);  // nothing to do
  CHECK(target.rig.mock.calls("copy") + source.rig.mock.calls("copy") == before);
  CHECK(target.now() == target.content);
}

TEST_CASE("one memory under two contexts is not copied over itself") {
  Rig a, b;
  const frt::Stream at_a = a.context.create_stream("a"), at_b = b.context.create_stream("b");
  Bytes memory = noise(64, 3);
  const Bytes before = memory;
  const frt::Buffer in_a = a.context.wrap(FRT_SPACE_HOST, memory.data(), 64, "mine");
  const frt::Buffer in_b = b.context.wrap(FRT_SPACE_HOST, memory.data(), 64, "yours");
  CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT, "'yours' and source 'mine' overlap",
              frt::copy_between(in_b, 0, at_b, in_a, 15, at_a, 16));
  CHECK(memory == before);
  frt::copy_between(in_b, 0, at_b, in_a, 16, at_a, 16);
  CHECK(std::equal(memory.begin(), memory.begin() + 16, before.begin() + 16));
}

TEST_CASE("a record callback of either context takes no copy to another") {
  const Side source({}, FRT_SPACE_DEVICE, 64, 1), target({}, FRT_SPACE_DEVICE, 64, 2);
  for (const Side* recording : {&source, &target}) {
    frt::Graph graph = recording->rig.context.create_graph("g", 1);
    CHECK_FAILS(FRT_ERR_BAD_STATE, "record callback",
                graph.capture(1, [&](const frt::Recorder&) { copy(target, 0, source, 0, 16); }));
  }
}

TEST_CASE("staging memory that cannot be had is an error with numbers, and nothing is copied") {
  Side source({}, FRT_SPACE_DEVICE, 64, 1), target({}, FRT_SPACE_DEVICE, 64, 2);
  source.rig.mock.fail("memory_alloc", FRT_ERR_OUT_OF_MEMORY);
  CHECK_FAILS(FRT_ERR_OUT_OF_MEMORY, "8388608 bytes of host-pinned memory of context 'dev0'",
              copy(target, 0, source, 0, 64));
  CHECK(target.now() == target.content);
  copy(target, 0, source, 0, 64);
  CHECK(target.now() == source.content);
}

TEST_CASE("an event that cannot be had keeps two streams of one context apart, with the reason") {
  Rig rig;
  const frt::Stream a = rig.context.create_stream("a"), b = rig.context.create_stream("b");
  const frt::Buffer buffer = rig.context.alloc(FRT_SPACE_DEVICE, 64, "b");
  rig.mock.fail("event_create", FRT_ERR_OUT_OF_MEMORY);
  CHECK_FAILS(FRT_ERR_OUT_OF_MEMORY, "an event to order two streams by",
              frt::copy_between(buffer, 0, a, buffer, 32, b, 16));
  CHECK_NOTHROW(frt::copy_between(buffer, 0, a, buffer, 32, b, 16));
  rig.context.sync();
}

TEST_CASE("devices that do not reach each other are copied between through pinned memory") {
  const RigOptions options{.peers = true};
  Side source(options, FRT_SPACE_DEVICE, 64, 1), target(options, FRT_SPACE_DEVICE, 64, 2);
  target.rig.mock.fail("copy_peer", FRT_ERR_UNSUPPORTED);
  copy(target, 0, source, 0, 64);
  CHECK(target.now() == source.content);
  CHECK(source.rig.counters().buffer_bytes[FRT_SPACE_HOST_PINNED] == kStaged);
}

TEST_CASE("a peer copy that fails is an error, not a copy by another way") {
  const RigOptions options{.peers = true};
  Side source(options, FRT_SPACE_DEVICE, 64, 1), target(options, FRT_SPACE_DEVICE, 64, 2);
  target.rig.mock.fail("copy_peer", FRT_ERR_DEVICE);
  CHECK_FAILS(FRT_ERR_DEVICE,
              "buffer_copy_between: the device of context 'dev0' (backend 'test.mock') reported",
              copy(target, 0, source, 0, 64));
  CHECK(target.now() == target.content);
  // Either device may have said why.
  for (Side* told : {&target, &source}) {
    told->rig.mock.failed_call.note(FRT_ERR_DEVICE, "no such link");
    target.rig.mock.fail("copy_peer", FRT_ERR_DEVICE);
    CHECK_FAILS(FRT_ERR_DEVICE, "(-3): no such link", copy(target, 0, source, 0, 64));
  }
  CHECK_NOTHROW(copy(target, 0, source, 0, 64));  // both go on
}

TEST_CASE("a device that is lost in a peer copy is the one that is lost afterwards") {
  const RigOptions options{.peers = true};
  for (const bool source_is_lost : {false, true}) {
    CAPTURE(source_is_lost);
    Side source(options, FRT_SPACE_DEVICE, 64, 1), target(options, FRT_SPACE_DEVICE, 64, 2);
    target.rig.mock.fail("copy_peer", FRT_ERR_DEVICE_LOST);
    Side& lost = source_is_lost ? source : target;
    const Side& other = source_is_lost ? target : source;
    lost.rig.mock.fail("stream_sync", FRT_ERR_DEVICE_LOST);
    CHECK_FAILS(FRT_ERR_DEVICE_LOST, "is lost; open it again", copy(target, 0, source, 0, 64));
    CHECK_FAILS(FRT_ERR_DEVICE_LOST, "is lost", lost.rig.context.sync());
    CHECK_NOTHROW(other.rig.context.sync());
    CHECK_FAILS(FRT_ERR_DEVICE_LOST, "is lost", copy(target, 0, source, 0, 64));
  }
}

TEST_CASE("a device that is lost in a staged copy says so, and the other goes on") {
  for (const bool source_is_lost : {false, true}) {
    CAPTURE(source_is_lost);
    Side source({}, FRT_SPACE_DEVICE, 64, 1), target({}, FRT_SPACE_DEVICE, 64, 2);
    Side& lost = source_is_lost ? source : target;
    const Side& other = source_is_lost ? target : source;
    lost.rig.mock.fail("copy", FRT_ERR_DEVICE_LOST);
    CHECK_FAILS(FRT_ERR_DEVICE_LOST, "is lost; open it again", copy(target, 0, source, 0, 64));
    CHECK_FAILS(FRT_ERR_DEVICE_LOST, "is lost", lost.rig.context.sync());
    CHECK_NOTHROW(other.rig.context.sync());
  }
}
