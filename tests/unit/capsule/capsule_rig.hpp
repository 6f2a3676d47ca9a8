// SPDX-License-Identifier: Apache-2.0
// capsule_rig.hpp - a device and an arena with a random layout, read and written the naive way: by
// the formulas of frt/capsule.h, row for row, over a copy of the whole arena.
//
// The device is the mock backend's, or that of the plugin FRT_TEST_BACKEND from the folder
// FRT_TEST_BACKEND_DIR.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <frt/capsule.hpp>
#include <frt/core/capsules.hpp>
#include <frt/core/context.hpp>
#include <frt/core/exec_table.hpp>
#include <frt/core/runtime.hpp>
#include <frt/core/state.hpp>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cases.hpp"
#include "mock_backend.hpp"

namespace frt::test {

using Bytes = std::vector<uint8_t>;

// ---- a device ------------------------------------------------------------------------------

class DeviceRig {
 public:
  DeviceRig() {
    const char* backend = std::getenv("FRT_TEST_BACKEND");
    if (backend && *backend) {
      open_plugin(backend);
    } else {
      open_mock(0);
    }
  }
  // The mock, whatever the environment says, with FRT_DEVICE_* flags.
  explicit DeviceRig(uint32_t device_flags) { open_mock(device_flags); }
  ~DeviceRig() {
    if (!mock) return;
    CHECK_NOTHROW(core::close_context(handle_));
    CHECK(mock->violations == std::vector<std::string>{});
    CHECK(mock->live_blocks == 0);
    CHECK(mock->live_events == 0);
    CHECK(mock->live_streams == 0);
  }
  DeviceRig(const DeviceRig&) = delete;
  DeviceRig& operator=(const DeviceRig&) = delete;

  std::unique_ptr<MockBackend> mock;  // null: a plugin
  Context context;

 private:
  void open_mock(uint32_t device_flags) {
    mock = std::make_unique<MockBackend>();
    mock->device_flags = device_flags;
    core::ContextOptions options;
    options.name = "dev0";
    options.backend_id = "test.mock";
    handle_ = core::open_context(mock->table, mock->plugin(), 0, nullptr, options);
    context = Context(core::exec_table(), handle_);
  }
  void open_plugin(const std::string& backend) {
    core::RegistryOptions options;
    options.plugin_folders = {FRT_PLUGIN_DIR};
    if (const char* folder = std::getenv("FRT_TEST_BACKEND_DIR")) {
      options.plugin_folders.emplace_back(folder);
    }
    options.use_environment = false;
    options.own_folder = FRT_PLUGIN_DIR;
    options.probing = core::Probing::kNever;
    registry_ = std::make_unique<core::Registry>(options);
    core::ManifestRequest request;
    request.environment = [](const std::string&) { return std::nullopt; };
    request.schemas = registry_.get();
    core::RuntimeOptions runtime;
    runtime.all_devices = true;
    runtime_ = std::make_unique<core::Runtime>(
        core::parse_manifest("schema = 1\n[device.d]\nbackend = \"" + backend + "\"\n", "/m.toml",
                             request),
        *registry_, services_, runtime);
    context = Context(core::exec_table(), runtime_->device("d").context);
  }

  frt_context handle_ = nullptr;
  core::Log log_{core::LogOptions{}};
  core::HostServices services_{log_};
  std::unique_ptr<core::Registry> registry_;
  std::unique_ptr<core::Runtime> runtime_;
};

// ---- an arena ------------------------------------------------------------------------------

struct Shape {
  struct Region {
    std::string name;
    uint32_t kind;
    frt_dtype dtype;
    uint64_t row_bytes, max_rows;
    int64_t row_lag;
  };
  std::vector<Region> regions;
  uint32_t page_rows = 0, spare_pages = 0, slots = 2;
  uint64_t max_rows = 0;
};

inline Shape random_shape(std::mt19937_64& random) {
  const auto below = [&](uint64_t end) { return random() % end; };
  Shape shape;
  shape.slots = static_cast<uint32_t>(2 + below(4));
  shape.max_rows = 1 + below(70);
  const bool pages = below(2) == 0;
  if (pages) {
    shape.page_rows = 1u << below(5);
    shape.spare_pages = static_cast<uint32_t>(4 * (shape.max_rows / shape.page_rows + 1));
  }
  const uint64_t rows = pages ? 1 + below(4) : below(5);
  const uint64_t fixed = rows == 0 ? 1 + below(4) : below(5);
  for (uint64_t i = 0; i < fixed; ++i) {
    shape.regions.push_back({"fixed." + std::to_string(i), FRT_REGION_FIXED, FRT_DTYPE_F32,
                             1 + below(below(2) ? 40 : 3000), 1, 0});
  }
  for (uint64_t i = 0; i < rows; ++i) {
    int64_t lag = below(3) ? 0 : static_cast<int64_t>(below(4));
    uint64_t most = shape.max_rows + below(5);
    if (!pages && below(4) == 0) {
      lag = -static_cast<int64_t>(below(3));
      most += static_cast<uint64_t>(-lag);
    }
    shape.regions.push_back({"rows." + std::to_string(i), FRT_REGION_ROWS, FRT_DTYPE_BF16,
                             1 + below(below(2) ? 9 : 300), most, lag});
  }
  std::shuffle(shape.regions.begin(), shape.regions.end(), random);
  return shape;
}

class Arena {
 public:
  Arena(const DeviceRig& rig, Shape given)
      : shape(std::move(given)), context_(rig.context), stream(rig.context.create_stream("main")) {
    std::vector<frt_region> regions;
    for (const Shape::Region& r : shape.regions) {
      regions.push_back({r.name.c_str(), r.kind, r.dtype, r.row_bytes, r.max_rows, r.row_lag});
    }
    const frt_capsule_layout layout{sizeof(layout), static_cast<uint32_t>(regions.size()),
                                    regions.data(), shape.page_rows, shape.spare_pages};
    state = State(core::state_table(), rig.context, layout, shape.slots, "state");
    capsules = Capsules(core::capsules_table(), rig.context, state.handle());
    buffer_ = Buffer::retain(rig.context, state.info().buffer);
  }

  // Where the arena is; capsules there hold pages by reference.
  frt_space space() const { return buffer_.space(); }
  bool shared() const { return space() == FRT_SPACE_SHARED; }

  // ---- the whole arena as it is ----
  Bytes image() const { return buffer_.download<uint8_t>(buffer_.bytes(), stream); }
  void set_image(const Bytes& image) const { buffer_.upload(image, stream); }
  std::vector<int32_t> table() const {
    const frt_state_info& info = state.info();
    if (!info.page_table) return {};
    const uint64_t count = uint64_t{info.slots} * info.slot_pages;
    const Buffer view = context_.wrap(FRT_SPACE_DEVICE, const_cast<int32_t*>(info.page_table),
                                      count * sizeof(int32_t), "table");
    return view.download<int32_t>(count, stream);
  }

  // ---- addressing ----
  uint64_t valid_rows(const Shape::Region& region, uint64_t boundary) const {
    const int64_t rows = static_cast<int64_t>(boundary) - region.row_lag;
    return rows > 0 ? static_cast<uint64_t>(rows) : 0;
  }
  uint64_t row_at(const Shape::Region& region, uint32_t slot, uint64_t row,
                  const std::vector<int32_t>& table) const {
    const frt_state_info& info = state.info();
    const uint64_t base = state.region(region.name);
    if (shape.page_rows == 0 || region.kind == FRT_REGION_FIXED) {
      return base + slot * info.slot_stride + row * region.row_bytes;
    }
    const int32_t page = table[slot * info.slot_pages + row / shape.page_rows];
    REQUIRE(page >= 0);
    return base + static_cast<uint64_t>(page) * info.page_stride +
           row % shape.page_rows * region.row_bytes;
  }
  // Calls visit(arena offset, bytes) for everything that is valid in a slot, in the layout's order.
  template <class Visit>
  void for_each_valid(uint32_t slot, uint64_t boundary, Visit&& visit) const {
    const auto pages = table();
    for (const Shape::Region& region : shape.regions) {
      const uint64_t rows = region.kind == FRT_REGION_FIXED ? 1 : valid_rows(region, boundary);
      for (uint64_t row = 0; row < rows; ++row) {
        visit(row_at(region, slot, row, pages), region.row_bytes);
      }
    }
  }

  // ---- content ----
  Bytes content(uint32_t slot, uint64_t boundary) const {
    const Bytes all = image();
    Bytes bytes;
    for_each_valid(slot, boundary, [&](uint64_t at, uint64_t count) {
      bytes.insert(bytes.end(), all.begin() + static_cast<std::ptrdiff_t>(at),
                   all.begin() + static_cast<std::ptrdiff_t>(at + count));
    });
    return bytes;
  }
  // A new life of the slot: random bytes up to `boundary`. Returns its content.
  Bytes live(uint32_t slot, uint64_t boundary, std::mt19937_64& random) const {
    state.clear(slot, stream);
    state.reserve(slot, 0, boundary, stream);
    return overwrite(slot, boundary, random);
  }
  Bytes overwrite(uint32_t slot, uint64_t boundary, std::mt19937_64& random) const {
    Bytes all = image();
    for_each_valid(slot, boundary, [&](uint64_t at, uint64_t count) {
      for (uint64_t i = 0; i < count; ++i) all[at + i] = static_cast<uint8_t>(random());
    });
    set_image(all);
    return content(slot, boundary);
  }

  Shape shape;

 private:
  Context context_;

 public:
  Stream stream;
  State state;
  Capsules capsules;

 private:
  Buffer buffer_;
};

// ---- files ---------------------------------------------------------------------------------

// A folder of its own, gone with the object; in memory where the system has such a file system.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::error_code none;
    const bool fast = std::filesystem::is_directory("/dev/shm", none);
    std::string name =
        (fast ? std::string("/dev/shm") : std::filesystem::temp_directory_path().string()) +
        "/frt-capsules-XXXXXX";
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~TemporaryFolder() {
    std::error_code none;
    std::filesystem::remove_all(path, none);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string path;
};

// ---- errors --------------------------------------------------------------------------------

template <class Body>
frt_error caught(Body&& body) {
  frt_error error{};
  try {
    body();
  } catch (const Error& e) {
    set_error(&error, e.status(), e.what());
  }
  return error;
}

#define CHECK_FAILS(status, part, ...)                                        \
  do {                                                                        \
    const frt_error caught_error = frt::test::caught([&] { __VA_ARGS__; });   \
    INFO("message: ", caught_error.message);                                  \
    CHECK(std::string(frt::status_name(caught_error.code)) ==                 \
          std::string(frt::status_name(status)));                             \
    CHECK(std::string(caught_error.message).find(part) != std::string::npos); \
  } while (false)

}  // namespace frt::test
