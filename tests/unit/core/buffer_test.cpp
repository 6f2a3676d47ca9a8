// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <numeric>
#include <random>

#include "rig.hpp"

namespace {
constexpr uint64_t kMax = UINT64_MAX;
using Bytes = std::vector<uint8_t>;

Bytes counting(std::size_t size, uint8_t from = 0) {
  Bytes bytes(size);
  std::iota(bytes.begin(), bytes.end(), from);
  return bytes;
}
}  // namespace

TEST_CASE("memory comes with its name, space, size and an alignment of 256 bytes") {
  Rig rig({.device_flags = FRT_DEVICE_SHARED_MEMORY});
  for (frt_space space = 0; space < FRT_SPACE_COUNT; ++space) {
    const frt::Buffer buffer = rig.context.alloc(space, 100, "weights");
    CHECK(std::string(buffer.name()) == "weights");
    CHECK(buffer.bytes() == 100);
    CHECK(buffer.space() == space);
    CHECK(reinterpret_cast<uintptr_t>(buffer.pointer()) % 256 == 0);
  }
}

TEST_CASE("shared memory of a device that has none is refused with what to do") {
  Rig rig;
  int value = 0;
  CHECK_FAILS(FRT_ERR_UNSUPPORTED, "use device memory, and copy",
              (void)rig.context.alloc(FRT_SPACE_SHARED, 64, "weights"));
  CHECK_FAILS(FRT_ERR_UNSUPPORTED, "device 'dev0' has no memory that it shares",
              (void)rig.context.wrap(FRT_SPACE_SHARED, &value, sizeof(value), "weights"));
  CHECK(rig.mock.calls("memory_alloc") == 0);
}

TEST_CASE("impossible requests for memory are refused") {
  Rig rig;
  CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT, "0 bytes",
              (void)rig.context.alloc(FRT_SPACE_DEVICE, 0, "none"));
  CHECK_FAILS(FRT_ERR_UNSUPPORTED, "unknown space",
              (void)rig.context.alloc(FRT_SPACE_COUNT, 1, "where"));
  CHECK_FAILS(FRT_ERR_OUT_OF_MEMORY, "buffer 'huge', 18446744073709551615 bytes in device memory",
              (void)rig.context.alloc(FRT_SPACE_DEVICE, kMax, "huge"));
  CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT, "null pointer",
              (void)rig.context.wrap(FRT_SPACE_HOST, nullptr, 1, "null"));
  int value = 0;
  CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT, "wraps around",
              (void)rig.context.wrap(FRT_SPACE_HOST, &value, kMax, "wrapping"));
}

TEST_CASE("copies between any two spaces arrive, in stream order") {
  Rig rig({.device_flags = FRT_DEVICE_SHARED_MEMORY});
  const frt::Stream stream = rig.context.create_stream("s");
  const frt::Recorder recorder(stream);
  for (frt_space from = 0; from < FRT_SPACE_COUNT; ++from) {
    for (frt_space to = 0; to < FRT_SPACE_COUNT; ++to) {
      const frt::Buffer source = rig.context.alloc(from, 64, "source");
      const frt::Buffer target = rig.context.alloc(to, 64, "target");
      source.upload(counting(64), stream);
      recorder.fill(target, 0, 64, 0xEE);
      recorder.copy(target, 8, source, 16, 32);
      Bytes expected(64, 0xEE);
      for (uint8_t i = 0; i < 32; ++i) expected[8u + i] = static_cast<uint8_t>(16 + i);
      CHECK(target.download<uint8_t>(64, stream) == expected);
    }
  }
}

TEST_CASE("ranges are checked without overflow") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  const frt::Recorder recorder(stream);
  const frt::Buffer a = rig.context.alloc(FRT_SPACE_DEVICE, 64, "a");
  const frt::Buffer b = rig.context.alloc(FRT_SPACE_DEVICE, 64, "b");
  const uint64_t offsets[] = {0, 1, 63, 64, 65, kMax - 63, kMax - 1, kMax};
  const uint64_t sizes[] = {0, 1, 63, 64, 65, kMax - 63, kMax - 1, kMax};
  for (uint64_t offset : offsets) {
    for (uint64_t bytes : sizes) {
      CAPTURE(offset);
      CAPTURE(bytes);
      const bool fits = offset <= 64 && bytes <= 64 && offset + bytes <= 64;
      const frt_status expected = fits ? FRT_OK : FRT_ERR_OUT_OF_RANGE;
      CHECK(caught([&] { recorder.copy(a, offset, b, 0, bytes); }).code ==
            (bytes > 64 ? FRT_ERR_OUT_OF_RANGE : expected));
      CHECK(caught([&] { recorder.copy(a, 0, b, offset, bytes); }).code ==
            (bytes > 64 ? FRT_ERR_OUT_OF_RANGE : expected));
      CHECK(caught([&] { recorder.fill(a, offset, bytes, 0); }).code == expected);
      CHECK(caught([&] { (void)a.view(offset, bytes, "v"); }).code ==
            (bytes == 0 ? FRT_ERR_INVALID_ARGUMENT : expected));
    }
  }
  CHECK_FAILS(FRT_ERR_OUT_OF_RANGE, "target: 1 bytes at 64 of buffer 'a', which has 64",
              recorder.copy(a, 64, b, 0, 1));
  CHECK_FAILS(FRT_ERR_OUT_OF_RANGE, "source: 2 bytes at 63 of buffer 'b'",
              recorder.copy(a, 0, b, 63, 2));
}

TEST_CASE("overlapping ranges of one memory are refused, touching ones are not") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  const frt::Recorder recorder(stream);
  const frt::Buffer a = rig.context.alloc(FRT_SPACE_DEVICE, 64, "a");
  const frt::Buffer v = a.view(32, 32, "v");
  CHECK_NOTHROW(recorder.copy(a, 0, a, 16, 16));
  CHECK_NOTHROW(recorder.copy(a, 16, a, 0, 16));
  CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT, "overlap", recorder.copy(a, 0, a, 15, 16));
  CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT, "overlap", recorder.copy(a, 15, a, 0, 16));
  CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT, "overlap", recorder.copy(a, 0, a, 0, 16));
  CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT, "overlap", recorder.copy(a, 24, v, 0, 16));
  CHECK_NOTHROW(recorder.copy(a, 0, v, 0, 32));
  CHECK_NOTHROW(recorder.copy(a, 8, a, 8, 0));
  stream.sync();
}

TEST_CASE("a batch is one submission, or nothing at all") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  const frt::Recorder recorder(stream);
  const frt::Buffer source = rig.context.alloc(FRT_SPACE_HOST, 64, "source");
  const frt::Buffer target = rig.context.alloc(FRT_SPACE_DEVICE, 64, "target");
  source.upload(counting(64), stream);
  target.upload(Bytes(64, 0xEE), stream);
  const int before = rig.mock.calls("copy");

  const frt_copy good[] = {{target, 0, source, 60, 4},
                           {target, 8, source, 0, 2},
                           {target, 4, source, 60, 4},
                           {target, 20, source, 20, 0}};
  recorder.copy_batch(good);
  CHECK(rig.mock.calls("copy") == before + 1);
  Bytes expected(64, 0xEE);
  for (uint8_t i = 0; i < 4; ++i) expected[i] = expected[4u + i] = static_cast<uint8_t>(60 + i);
  expected[8] = 0;
  expected[9] = 1;
  CHECK(target.download<uint8_t>(64, stream) == expected);

  const frt_copy bad[] = {{target, 0, source, 0, 4}, {target, kMax, source, 0, 4}};
  CHECK_FAILS(FRT_ERR_OUT_OF_RANGE, "target", recorder.copy_batch(bad));
  CHECK(target.download<uint8_t>(64, stream) == expected);

  const int empty_before = rig.mock.calls("copy");
  recorder.copy_batch({});
  CHECK(rig.mock.calls("copy") == empty_before);
  CHECK(rig.context.table().buffer_copy_batch(nullptr, 1, stream) == FRT_ERR_INVALID_ARGUMENT);
}

TEST_CASE("a batch holds at most FRT_COPY_BATCH_MAX copies") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  const uint64_t count = FRT_COPY_BATCH_MAX + 1;
  const frt::Buffer source = rig.context.alloc(FRT_SPACE_HOST, count, "source");
  const frt::Buffer target = rig.context.alloc(FRT_SPACE_DEVICE, count, "target");
  source.upload(counting(count), stream);
  target.upload(Bytes(count, 0xEE), stream);
  std::vector<frt_copy> copies;
  for (uint64_t i = 0; i < count; ++i) copies.push_back({target, i, source, i, 1});
  CHECK(rig.context.table().buffer_copy_batch(copies.data(), count, stream) ==
        FRT_ERR_INVALID_ARGUMENT);
  frt::Recorder(stream).copy_batch(std::span(copies).first(FRT_COPY_BATCH_MAX));
  const Bytes result = target.download<uint8_t>(count, stream);
  CHECK(std::equal(result.begin(), result.end() - 1, counting(count).begin()));
  CHECK(result.back() == 0xEE);
}

TEST_CASE(
    "a batch is refused exactly if a target overlaps a target or a source (random batches "
    "beside the quadratic check)") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  const frt::Buffer buffer = rig.context.alloc(FRT_SPACE_DEVICE, 256, "b");
  std::mt19937 random(7);
  int accepted = 0, refused = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<frt_copy> copies(1 + random() % 6);
    for (frt_copy& copy : copies) {
      copy = {buffer, random() % 240, buffer, random() % 240, 1 + random() % 12};
    }
    const auto meet = [](uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes) {
      return a < b + b_bytes && b < a + a_bytes;
    };
    bool clean = true;
    for (std::size_t i = 0; i < copies.size(); ++i) {
      for (std::size_t j = 0; j < copies.size(); ++j) {
        const frt_copy &a = copies[i], &b = copies[j];
        if (i != j && meet(a.target_offset, a.bytes, b.target_offset, b.bytes)) clean = false;
        if (meet(a.target_offset, a.bytes, b.source_offset, b.bytes)) clean = false;
      }
    }
    const frt_status status =
        rig.context.table().buffer_copy_batch(copies.data(), copies.size(), stream);
    CHECK(status == (clean ? FRT_OK : FRT_ERR_INVALID_ARGUMENT));
    ++(clean ? accepted : refused);
  }
  CHECK(accepted > 100);
  CHECK(refused > 100);
}

TEST_CASE("a view shares memory and keeps its parent alive") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  frt::Buffer parent = rig.context.alloc(FRT_SPACE_DEVICE, 64, "parent");
  frt::Buffer view = parent.view(16, 32, "view");
  frt::Buffer inner = view.view(8, 8, "inner");
  CHECK(inner.pointer<std::byte>() == parent.pointer<std::byte>() + 24);
  CHECK(rig.counters().buffer_bytes[FRT_SPACE_DEVICE] == 64);
  parent.reset();
  view.reset();
  CHECK(rig.mock.live_blocks == 1);
  frt::Recorder(stream).fill(inner, 0, 8, 3);
  CHECK(inner.download<uint8_t>(8, stream) == Bytes(8, 3));
  inner.reset();
  CHECK(rig.mock.live_blocks == 0);
  CHECK(rig.counters().buffer_bytes[FRT_SPACE_DEVICE] == 0);
}

TEST_CASE("memory goes with the last reference") {
  Rig rig;
  frt::Buffer a = rig.context.alloc(FRT_SPACE_DEVICE, 64, "a");
  frt::Buffer b = frt::Buffer::retain(rig.context, a);
  a.reset();
  CHECK(rig.mock.live_blocks == 1);
  b.reset();
  CHECK(rig.mock.live_blocks == 0);
}

TEST_CASE("releasing memory waits for the work in flight that touches it") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  frt::Buffer a = rig.context.alloc(FRT_SPACE_DEVICE, 64, "a");
  frt::Recorder(stream).fill(a, 0, 64, 1);
  CHECK(rig.mock.pending() == 1);
  a.reset();  // the rig checks that nothing was freed in flight
  CHECK(rig.mock.pending() == 0);
}

TEST_CASE("releasing memory waits for kernels that were submitted past the table") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  frt::Buffer a = rig.context.alloc(FRT_SPACE_DEVICE, 64, "a");
  rig.append(frt::Recorder(stream), {0, 1});
  a.reset();
  CHECK(rig.mock.pending() == 0);
}

TEST_CASE("the owner of wrapped memory is told once, after the work in flight") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  std::vector<uint8_t> memory(16, 0);
  struct Seen {
    int times = 0;
    uint8_t value = 0;
    std::vector<uint8_t>* memory;
  } seen{0, 0, &memory};
  frt::Buffer wrapped = rig.context.wrap(
      FRT_SPACE_HOST, memory.data(), 16, "mine",
      [](void* user) {
        auto& box = *static_cast<Seen*>(user);
        ++box.times;
        box.value = box.memory->front();
      },
      &seen);
  frt::Recorder(stream).fill(wrapped, 0, 16, 9);
  frt::Buffer view = wrapped.view(0, 8, "part");
  wrapped.reset();
  CHECK(seen.times == 0);
  view.reset();
  CHECK(seen.times == 1);
  CHECK(seen.value == 9);
}

TEST_CASE("a release callback that throws does no harm") {
  Rig rig;
  int value = 0;
  {
    const frt::Buffer wrapped = rig.context.wrap(
        FRT_SPACE_HOST, &value, 4, "thrower", [](void*) { throw 1; }, nullptr);
  }
  CHECK(contains(rig.context.last_error(), "thrower"));
}

TEST_CASE("errors of the backend while copying and filling come through") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  const frt::Buffer a = rig.context.alloc(FRT_SPACE_DEVICE, 64, "a");
  const frt::Buffer b = rig.context.alloc(FRT_SPACE_DEVICE, 64, "b");
  rig.mock.fail("copy", FRT_ERR_DEVICE, 2);
  rig.mock.fail("fill", FRT_ERR_DEVICE);
  const frt_copy batch[] = {{a, 0, b, 0, 4}};
  CHECK_FAILS(FRT_ERR_DEVICE, "buffer_copy", frt::Recorder(stream).copy(a, 0, b, 0, 1));
  CHECK_FAILS(FRT_ERR_DEVICE, "buffer_copy_batch", frt::Recorder(stream).copy_batch(batch));
  CHECK_FAILS(FRT_ERR_DEVICE, "buffer_fill", frt::Recorder(stream).fill(a, 0, 1, 1));
}
