// SPDX-License-Identifier: Apache-2.0
// The promise of additive versions: what was built with the headers of a released version works
// with today's core, and structs that are smaller or larger than today's are understood.
#include <doctest/doctest.h>

#include <cstring>
#include <frt/core/context.hpp>
#include <frt/core/exec_table.hpp>
#include <frt/exec.hpp>
#include <memory>
#include <string>
#include <vector>

#include "layouts.hpp"
#include "v0_9.h"

namespace {

frt_context open(const frt_backend_v1& table, const frt_kernels_v1* kernels = nullptr) {
  frt::core::ContextOptions options;
  options.name = "dev0";
  options.backend_id = "test.frozen";
  options.kernels = kernels;
  return frt::core::open_context(table, nullptr, 0, nullptr, options);
}

// A copy of `table` whose memory ends exactly where it says, so that a read past it is caught.
struct CutTable {
  CutTable(const void* table, uint32_t size) : memory(new std::byte[size]) {
    std::memcpy(memory.get(), table, size);
    std::memcpy(memory.get(), &size, sizeof(size));
  }
  const frt_backend_v1& get() const {
    return *reinterpret_cast<const frt_backend_v1*>(memory.get());
  }
  std::unique_ptr<std::byte[]> memory;
};

}  // namespace

TEST_CASE("structs of 0.9 keep their members in place; frozen ones keep their size") {
  std::size_t frozen_count = 0, current_count = 0;
  const Layout* frozen = frozen_layouts(&frozen_count);
  const Layout* current = current_layouts(&current_count);
  REQUIRE(frozen_count == current_count);
  CHECK(frozen_count > 20);
  for (std::size_t i = 0; i < frozen_count; ++i) {
    CAPTURE(frozen[i].type);
    CAPTURE(frozen[i].last_member);
    CHECK(std::string(current[i].type) == frozen[i].type);
    CHECK(current[i].can_grow == frozen[i].can_grow);
    CHECK(current[i].last_offset == frozen[i].last_offset);
    if (frozen[i].can_grow) {
      CHECK(current[i].size >= frozen[i].size);
    } else {
      CHECK(current[i].size == frozen[i].size);
    }
  }
}

TEST_CASE("a program and a backend in C, built with the headers of 0.9, work with this core") {
  const frt_context context = open(*static_cast<const frt_backend_v1*>(v0_9_backend()));
  v0_9_launched = 0;
  const char* problem = v0_9_program(frt::core::exec_table(), context);
  CHECK_MESSAGE(problem == nullptr, problem);
  CHECK(v0_9_launched == 4);
  CHECK_NOTHROW(frt::core::close_context(context));
}

TEST_CASE("a backend whose table has no optional function works") {
  frt_backend_v1 table{};
  std::memcpy(static_cast<void*>(&table), v0_9_backend(), sizeof(table));
  table.exec_node_count = nullptr;
  const frt_context context = open(table);
  const char* problem = v0_9_program(frt::core::exec_table(), context);
  CHECK_MESSAGE(problem == nullptr, problem);
  frt::core::close_context(context);
}

TEST_CASE("a backend whose table ends too early is refused, and not read past its end") {
  for (uint32_t size : {8u, 24u, uint32_t{offsetof(frt_backend_v1, exec_launch)},
                        uint32_t{offsetof(frt_backend_v1, exec_node_count)}}) {
    const CutTable cut(v0_9_backend(), size);
    frt_status status = FRT_OK;
    try {
      frt::core::close_context(open(cut.get()));
    } catch (const frt::Error& e) {
      status = e.status();
    }
    CHECK(status == FRT_ERR_ABI);
  }
}

TEST_CASE("a newer backend with a larger table works; what core does not know is ignored") {
  struct {
    frt_backend_v1 table;
    void (*future)();
  } newer;
  std::memcpy(&newer.table, v0_9_backend(), sizeof(newer.table));
  newer.table.struct_size = sizeof(newer);
  newer.future = nullptr;
  const frt_context context = open(newer.table);
  const char* problem = v0_9_program(frt::core::exec_table(), context);
  CHECK_MESSAGE(problem == nullptr, problem);
  frt::core::close_context(context);
}

TEST_CASE("a newer backend's larger kernel descriptors are walked by their stride") {
  struct NewDesc {
    frt_kernel_desc desc;
    uint64_t future;
  };
  const auto launch = [](void*, frt_backend_stream, const void*, frt_error*) -> frt_status {
    return FRT_OK;
  };
  static NewDesc list[] = {
      {{sizeof(NewDesc), 8, "new.a/1", 0, 0, nullptr, 0, 0, {&list[0], launch, nullptr}}, 1},
      {{sizeof(NewDesc), 8, "new.b/1", 0, 0, nullptr, 0, 0, {&list[1], launch, nullptr}}, 2},
  };
  frt_kernels_v1 kernels{};
  kernels.struct_size = sizeof(kernels);
  kernels.stride = sizeof(NewDesc);
  kernels.list = [](frt_backend_device, const frt_kernel_desc** out, uint64_t* count,
                    frt_error*) -> frt_status {
    *out = &list[0].desc;
    *count = 2;
    return FRT_OK;
  };
  const frt_context context = open(*static_cast<const frt_backend_v1*>(v0_9_backend()), &kernels);
  const char* names[] = {"new.b/1", "new.a/1"};
  frt_kernel found[2] = {};
  CHECK(frt::core::exec_table()->kernels_resolve(context, nullptr, names, 2, 0, 0, nullptr, 0,
                                                 found, nullptr) == FRT_OK);
  CHECK(found[0].self == &list[1]);
  CHECK(found[1].self == &list[0]);
  frt::core::close_context(context);
}
