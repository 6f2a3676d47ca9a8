// SPDX-License-Identifier: Apache-2.0
#include <frt/models/device_memory.hpp>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "model_rig.hpp"

using frt::Error;
using frt::models::DeviceMemory;
using frt::models::UploadOptions;
using frt::test::ModelRig;

namespace {

constexpr const char* kOptions = "max_context = 64\nslots = 1\nprefill_chunk = 16";

std::vector<std::byte> pattern(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i * 31 + i / 251 + seed);
  return data;
}

// Reads `data`, which must live until the upload is finished.
frt::models::ByteReader reader_of(std::span<const std::byte> data) {
  return [data](std::uint64_t at, std::span<std::byte> target) {
    std::copy_n(data.begin() + static_cast<std::ptrdiff_t>(at), target.size(), target.begin());
  };
}

// What lies at a device address.
std::vector<std::byte> fetched(const DeviceMemory& memory, const std::byte* address,
                               std::size_t bytes) {
  const frt::Buffer view =
      memory.context().wrap(FRT_SPACE_DEVICE, const_cast<std::byte*>(address), bytes, "test.view");
  return view.download<std::byte>(bytes, memory.stream());
}

}  // namespace

TEST_CASE("uploads of every size arrive, staged and direct") {
  const ModelRig rig("synthetic:qwen3.6-tiny", kOptions);
  for (const bool in_place : {true, false}) {
    CAPTURE(in_place);
    DeviceMemory memory(rig.context, in_place);
    const std::size_t sizes[] = {
        1, 255, 257, std::size_t{70} << 20, 4096, 3, std::size_t{33} << 20};
    std::vector<std::vector<std::byte>> data;
    std::vector<const std::byte*> placed;
    for (const std::size_t size : sizes) {
      data.push_back(pattern(size, static_cast<unsigned>(data.size())));
      placed.push_back(memory.stream_in(size, reader_of(data.back())));
    }
    std::byte* pieces = memory.place(1000);
    memory.upload_to(pieces + 10, std::span(data[1]).first(200));
    memory.upload_to(pieces + 500, std::span(data[4]).first(300));
    memory.finish();
    for (std::size_t i = 0; i < data.size(); ++i) {
      CHECK(reinterpret_cast<std::uintptr_t>(placed[i]) % 256 == 0);
      CHECK(fetched(memory, placed[i], data[i].size()) == data[i]);
    }
    const std::vector<std::byte> seen = fetched(memory, pieces, 1000);
    CHECK(std::memcmp(seen.data() + 10, data[1].data(), 200) == 0);
    CHECK(std::memcmp(seen.data() + 500, data[4].data(), 300) == 0);
  }
}

TEST_CASE("weights go into shared memory as they are read, elsewhere through pinned memory") {
  const ModelRig rig("synthetic:qwen3.6-tiny", kOptions);
  const bool shared = (rig.context.info().device->flags & FRT_DEVICE_SHARED_MEMORY) != 0;
  const frt_counters before = rig.context.counters();
  DeviceMemory memory(rig.context);
  CHECK(memory.in_place() == shared);
  CHECK(frt::models::model_space(rig.context) == (shared ? FRT_SPACE_SHARED : FRT_SPACE_DEVICE));
  const std::vector<std::byte> data = pattern(std::size_t{9} << 20, 1);
  uint64_t pinned = 0;
  std::atomic<int> in_place = 0;
  const std::byte* placed = memory.place(data.size());
  UploadOptions options;
  options.threads = 2;
  options.progress = [&](std::uint64_t) {
    pinned = rig.context.counters().buffer_bytes[FRT_SPACE_HOST_PINNED];
  };
  memory.set_upload_options(options);
  memory.stream_to(const_cast<std::byte*>(placed), data.size(),
                   [&](std::uint64_t at, std::span<std::byte> target) {
                     if (target.data() == placed + at) ++in_place;
                     reader_of(data)(at, target);
                   });
  memory.finish();
  const frt_counters after = rig.context.counters();
  const auto grown = [&](frt_space space) {
    return after.buffer_bytes[space] - before.buffer_bytes[space];
  };
  CHECK((in_place > 0) == shared);
  CHECK((pinned > before.buffer_bytes[FRT_SPACE_HOST_PINNED]) == !shared);
  CHECK((grown(FRT_SPACE_SHARED) >= data.size()) == shared);
  CHECK((grown(FRT_SPACE_DEVICE) >= data.size()) == !shared);
  CHECK(fetched(memory, placed, data.size()) == data);
}

TEST_CASE("pieces share chunks, cross their ends, and exceed what one submission may hold") {
  const ModelRig rig("synthetic:qwen3.6-tiny", kOptions);
  for (const unsigned threads : {1u, 2u, 5u}) {
    for (const std::uint64_t chunk : {256u, 4096u, 65536u, 1u << 20}) {
      CAPTURE(threads);
      CAPTURE(chunk);
      DeviceMemory memory(rig.context, false);
      UploadOptions options;
      options.threads = threads;
      options.chunk_bytes = chunk;
      std::atomic<std::uint64_t> read_bytes = 0;
      std::uint64_t reported = 0;
      options.progress = [&](std::uint64_t bytes) {
        CHECK(bytes > reported);
        reported = bytes;
      };
      memory.set_upload_options(options);
      memory.reserve(200000);
      std::vector<std::vector<std::byte>> data;
      std::vector<const std::byte*> placed;
      std::uint64_t streamed = 0, all = 0;
      for (std::size_t i = 0; i < 60; ++i) {
        const std::size_t size = i % 7 == 3 ? chunk + i : i % 11 == 5 ? 3 * chunk - i : 1 + i * 37;
        data.push_back(pattern(size, static_cast<unsigned>(i)));
        all += size;
        if (i % 3 == 0) {  // gone as soon as the call returns
          std::vector<std::byte> passing = data.back();
          placed.push_back(memory.upload(passing));
          std::fill(passing.begin(), passing.end(), std::byte{0xEE});
        } else {
          streamed += size;
          placed.push_back(memory.stream_in(
              size, [&, read = reader_of(data.back())](std::uint64_t at, std::span<std::byte> to) {
                read(at, to);
                read_bytes += to.size();
              }));
        }
      }
      memory.finish();
      CHECK(read_bytes == streamed);
      CHECK(reported == all);
      for (std::size_t i = 0; i < data.size(); ++i) {
        CAPTURE(i);
        CHECK(fetched(memory, placed[i], data[i].size()) == data[i]);
      }
    }
  }
  // More pieces than one batch of copies takes.
  DeviceMemory memory(rig.context, false);
  constexpr std::size_t kPieces = FRT_COPY_BATCH_MAX + 700;
  const std::vector<std::byte> data = pattern(kPieces * 3, 9);
  std::byte* target = memory.place(data.size());
  for (std::size_t i = 0; i < kPieces; ++i) {
    memory.stream_to(target + 3 * i, 3, reader_of(std::span(data).subspan(3 * i, 3)));
  }
  memory.finish();
  CHECK(fetched(memory, target, data.size()) == data);
}

TEST_CASE("an upload goes on after finish, and what was not finished is given up") {
  const ModelRig rig("synthetic:qwen3.6-tiny", kOptions);
  const std::vector<std::byte> data = pattern(100000, 1);
  DeviceMemory memory(rig.context, false);
  const std::byte* first = memory.stream_in(data.size(), reader_of(data));
  memory.finish();
  memory.finish();
  const std::byte* second = memory.stream_in(data.size(), reader_of(data));
  memory.finish();
  CHECK(fetched(memory, first, data.size()) == data);
  CHECK(fetched(memory, second, data.size()) == data);
  DeviceMemory abandoned(rig.context, false);
  for (int i = 0; i < 100; ++i) abandoned.stream_in(data.size(), reader_of(data));
}

TEST_CASE("a reader that fails ends the upload with its error") {
  const ModelRig rig("synthetic:qwen3.6-tiny", kOptions);
  const std::vector<std::byte> data = pattern(std::size_t{1} << 20, 1);
  for (const bool in_place : {true, false}) {
    for (const std::uint64_t fails_at : {0u, 5u, 63u}) {
      CAPTURE(in_place);
      CAPTURE(fails_at);
      DeviceMemory memory(rig.context, in_place);
      UploadOptions options;
      options.threads = 3;
      options.chunk_bytes = 65536;
      memory.set_upload_options(options);
      std::atomic<std::uint64_t> calls = 0;
      const auto read = [&](std::uint64_t at, std::span<std::byte> target) {
        if (calls++ == fails_at) throw Error(FRT_ERR_IO, "the disk is gone");
        reader_of(data)(at, target);
      };
      const auto upload = [&] {
        for (int i = 0; i < 4; ++i) memory.stream_in(data.size(), read);
        memory.finish();
      };
      CHECK_THROWS_WITH_AS(upload(), "the disk is gone", Error);
    }
  }
}

TEST_CASE("an upload can be stopped, also one whose source belongs to the caller") {
  const ModelRig rig("synthetic:qwen3.6-tiny", kOptions);
  for (const bool own : {false, true}) {
    CAPTURE(own);
    std::vector<std::byte> data = pattern(std::size_t{4} << 20, 1);
    DeviceMemory memory(rig.context, false);
    UploadOptions options;
    options.threads = 3;
    options.chunk_bytes = 65536;
    options.progress = [&](std::uint64_t bytes) {
      if (bytes > data.size() / 2) throw Error(FRT_ERR_CANCELLED, "stopped on request");
    };
    memory.set_upload_options(options);
    const auto upload = [&] {
      if (own) {
        memory.upload(data);
      } else {
        memory.stream_in(data.size(), reader_of(data));
      }
      memory.finish();
    };
    CHECK_THROWS_WITH_AS(upload(), "stopped on request", Error);
    if (own) std::vector<std::byte>().swap(data);  // nobody reads it any more
  }
}

TEST_CASE("reserved memory is used to its end, and there is more behind it") {
  const ModelRig rig("synthetic:qwen3.6-tiny", kOptions);
  DeviceMemory memory(rig.context, false);
  memory.reserve(1024);
  std::byte* first = memory.place(700);  // 768
  std::byte* last = memory.place(256);
  CHECK(last - first == 768);
  std::byte* beyond = memory.place(1);
  CHECK((beyond < first || beyond >= first + 1024));
  CHECK(memory.placed_bytes() == 768 + 256 + 256);
}
