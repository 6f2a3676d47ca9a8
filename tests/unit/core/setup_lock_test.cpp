// SPDX-License-Identifier: Apache-2.0
// Calls of a backend that has no context yet come one at a time, whatever the threads of a process
// do.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <frt/core/context.hpp>
#include <frt/core/setup_lock.hpp>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>
#include <vector>

#include "null_backend.hpp"

using namespace frt;
using namespace std::chrono_literals;

namespace {

std::atomic<int> inside{0}, overlaps{0}, calls{0};

// A call that takes time, so that another one at the same time is noticed.
struct Inside {
  Inside() {
    ++calls;
    if (++inside > 1) ++overlaps;
    std::this_thread::sleep_for(1ms);
  }
  ~Inside() { --inside; }
};

frt_backend_v1 slow_table() {
  frt_backend_v1 table = null_backend::table();
  table.device_count = [](frt_plugin, uint32_t* count, frt_error*) -> frt_status {
    const Inside now;
    *count = 1;
    return FRT_OK;
  };
  table.device_info = [](frt_plugin, uint32_t, frt_device_info* info, frt_error*) -> frt_status {
    const Inside now;
    std::strcpy(info->name, "slow");
    return FRT_OK;
  };
  table.device_open = [](frt_plugin, uint32_t, const frt_config*, frt_backend_device* device,
                         frt_error*) -> frt_status {
    const Inside now;
    *device = null_backend::handle<frt_backend_device>();
    return FRT_OK;
  };
  table.device_close = [](frt_backend_device) { const Inside now; };
  return table;
}

}  // namespace

TEST_CASE("threads that count, describe, open and close devices do so one at a time") {
  const frt_backend_v1 table = slow_table();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 4; ++round) {
        uint32_t count = 0;
        frt_error error{};
        core::count_devices(table, nullptr, "test.slow", count, error);
        core::describe_device(table, nullptr, 0, "test.slow");
        core::close_context(core::open_context(table, nullptr, 0, nullptr, {}));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(calls == 4 * 4 * 6);
  CHECK(overlaps == 0);
}

TEST_CASE("a call of a backend may open another device") {
  static frt_context opened;
  frt_backend_v1 table = null_backend::table();
  table.device_count = [](frt_plugin, uint32_t* count, frt_error*) -> frt_status {
    const frt_backend_v1 other = null_backend::table();
    opened = core::open_context(other, nullptr, 0, nullptr, {});
    *count = 1;
    return FRT_OK;
  };
  uint32_t count = 0;
  frt_error error{};
  CHECK(core::count_devices(table, nullptr, "test.nested", count, error) == FRT_OK);
  core::close_context(opened);
}

TEST_CASE("a process that is forked while another thread holds the lock does not wait for it") {
  std::promise<void> held, go_on;
  std::thread holder([&] {
    const auto alone = core::lock_plugin_setup();
    held.set_value();
    go_on.get_future().wait();
  });
  held.get_future().wait();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);  // ends a child that waits
    { const auto alone = core::lock_plugin_setup(); }
    const pid_t grandchild = ::fork();
    if (grandchild == 0) {
      const auto alone = core::lock_plugin_setup();
      ::_exit(0);
    }
    int status = 1;
    if (::waitpid(grandchild, &status, 0) != grandchild) ::_exit(1);
    ::_exit(status == 0 ? 0 : 1);
  }
  int status = 1;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  go_on.set_value();
  holder.join();
  // Here it is the lock that it was: another thread waits for it.
  auto alone = core::lock_plugin_setup();
  auto other = std::async(std::launch::async, [] { return core::lock_plugin_setup().owns_lock(); });
  CHECK(other.wait_for(20ms) == std::future_status::timeout);
  alone.unlock();
  CHECK(other.get());
}
