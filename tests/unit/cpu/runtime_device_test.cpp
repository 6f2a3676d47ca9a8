// SPDX-License-Identifier: Apache-2.0
// The CPU backend as a plugin: descriptor, options, device info, memory.
#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <string_view>

#include "cpu_device.hpp"

using frt::cpu_test::CpuDevice;

namespace {

const frt_backend_v1& backend_table() {
  static CpuDevice device({.threads = 1});
  return device.backend();
}

std::string open_refusal(const frt::cpu_test::CpuOptions& options) {
  try {
    CpuDevice device(options);
  } catch (const frt::Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("the descriptor and the options can be read before the plugin is opened") {
  CHECK(std::string_view(frt_plugin_v1.id) == "frt.cpu");
  CHECK(frt_plugin_v1.kind == FRT_PLUGIN_BACKEND);
  CHECK(frt_plugin_v1.abi_major == FRT_ABI_MAJOR);
  CHECK(frt_plugin_v1.sanitizer == FRT_BUILD_SANITIZER);
  const auto* schema = static_cast<const frt_config_schema_v1*>(
      frt_plugin_v1.extension(nullptr, FRT_EXT_CONFIG_SCHEMA));
  REQUIRE(schema);
  CHECK(schema->plugin_option_count == 0);
  REQUIRE(schema->option_count == 3);
  CHECK(std::string_view(schema->options[0].key) == "threads");
  CHECK(std::string_view(schema->options[1].choices) == "fast|reference");
  CHECK(std::string_view(schema->options[2].default_text) == "auto");
  for (uint64_t i = 0; i < schema->option_count; ++i)
    CHECK(std::strlen(schema->options[i].doc) > 0);
  CHECK(frt_plugin_v1.extension(nullptr, FRT_EXT_BACKEND) == nullptr);
  CHECK(frt_plugin_v1.extension(nullptr, "frt.backend/2") == nullptr);
}

TEST_CASE("the machine is one device with a name, an architecture and memory") {
  const frt_backend_v1& backend = backend_table();
  uint32_t count = 0;
  CHECK(backend.device_count(nullptr, &count, nullptr) == FRT_OK);
  CHECK(count == 1);
  frt_device_info info{};
  info.struct_size = sizeof(info);
  REQUIRE(backend.device_info(nullptr, 0, &info, nullptr) == FRT_OK);
  CHECK(std::strlen(info.name) > 0);
  CHECK(std::strlen(info.detail) > 0);
  CHECK(std::string_view(info.numerics).find("oneDNN ") != std::string_view::npos);
  CHECK(info.compute_units >= 1);
  CHECK(info.memory_total > 0);
  CHECK(info.memory_free <= info.memory_total);
  CHECK(info.dlpack_type == 1);
  CHECK(info.flags == (FRT_DEVICE_PROCESSOR | FRT_DEVICE_SHARED_MEMORY));
#if defined(__x86_64__)
  CHECK(std::string_view(info.architecture).substr(0, 8) == "x86-64-v");
#endif
  MESSAGE(info.name << " | " << info.architecture << " | " << info.detail);

  SUBCASE("an older caller gets only the members it knows") {
    frt_device_info old{};
    std::memset(static_cast<void*>(&old), 0x5a, sizeof(old));
    old.struct_size = offsetof(frt_device_info, memory_total);
    REQUIRE(backend.device_info(nullptr, 0, &old, nullptr) == FRT_OK);
    CHECK(std::string_view(old.name) == info.name);
    CHECK(old.memory_total == 0x5a5a5a5a5a5a5a5aULL);
  }
  SUBCASE("there is no second device") {
    frt_error error{};
    CHECK(backend.device_info(nullptr, 1, &info, &error) == FRT_ERR_OUT_OF_RANGE);
    CHECK(std::string(error.message).find("ordinal 0") != std::string::npos);
  }
}

TEST_CASE("options that make no sense are refused by name") {
  CHECK(open_refusal({.isa = "avx9"}).find("avx9") != std::string::npos);
  CHECK(open_refusal({.numerics = "wild"}).find("wild") != std::string::npos);
  CHECK(open_refusal({.threads = -2}).find("threads") != std::string::npos);
  CHECK(open_refusal({.threads = 1, .numerics = "reference", .isa = "portable"}) == "");
}

TEST_CASE("memory is aligned in every space, and too much of it is refused with numbers") {
  CpuDevice device({.threads = 1});
  const frt_backend_v1& backend = device.backend();
  for (frt_space space = 0; space < FRT_SPACE_COUNT; ++space) {
    for (const uint64_t bytes : {uint64_t{1}, uint64_t{257}, uint64_t{5} << 20}) {
      void* block = nullptr;
      REQUIRE(backend.memory_alloc(device.handle(), space, bytes, &block, nullptr) == FRT_OK);
      CHECK(reinterpret_cast<uintptr_t>(block) % 256 == 0);
      std::memset(block, 1, bytes);
      backend.memory_free(device.handle(), space, block);
    }
  }
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
  REQUIRE(backend.device_memory(device.handle(), &free_bytes, &total_bytes) == FRT_OK);
  CHECK(free_bytes > 0);
  frt_error error{};
  void* block = &error;
  for (const uint64_t bytes : {total_bytes + (uint64_t{1} << 30), UINT64_MAX}) {
    CHECK(backend.memory_alloc(device.handle(), FRT_SPACE_DEVICE, bytes, &block, &error) ==
          FRT_ERR_OUT_OF_MEMORY);
    CHECK(block == &error);  // out parameters are written only on success
    CHECK(std::string(error.message).find("GiB") != std::string::npos);
  }
  CHECK(backend.memory_alloc(device.handle(), FRT_SPACE_COUNT, 64, &block, &error) ==
        FRT_ERR_INVALID_ARGUMENT);
  CHECK(backend.memory_alloc(device.handle(), FRT_SPACE_DEVICE, 0, &block, &error) ==
        FRT_ERR_INVALID_ARGUMENT);
}

TEST_CASE("foreign streams and executables are refused with the way out") {
  CpuDevice device({.threads = 1});
  frt_error error{};
  frt_backend_stream stream = nullptr;
  CHECK(device.backend().stream_wrap(device.handle(), nullptr, &stream, &error) ==
        FRT_ERR_UNSUPPORTED);
  CHECK(std::string(error.message).find("stream_create") != std::string::npos);
  frt_backend_exec exec = nullptr;
  CHECK(device.backend().exec_adopt(device.handle(), nullptr, 0, &exec, &error) ==
        FRT_ERR_UNSUPPORTED);
  CHECK(std::string(error.message).find("capture_begin") != std::string::npos);
  CHECK(device.backend().stream_native(device.stream()) == nullptr);
}
