// SPDX-License-Identifier: Apache-2.0
// Memory that runs out while a JSON value is built or written: such a value allocates when it is
// destroyed.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <frt/core/log.hpp>
#include <new>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/terminal/memory_reserve.hpp"
#include "memory_shortage.hpp"

namespace frt::test {

TEST_CASE("memory that runs out under a JSON value ends no process, again and again") {
  for (int64_t allocations = 0; allocations < 100; ++allocations) {
    for (const bool large : {false, true}) {
      host::fill_memory_reserve();
      allocations_left = allocations;
      bool refused = false;
      try {
        const nlohmann::ordered_json json = {{"numbers", {1, 2, 3}},
                                             {"deep", {{"a", {{"b", {4, 5}}}}, {"c", "text"}}}};
        if (large) refused = std::string(2 * kLargeBlock, ' ').empty();
      } catch (const std::bad_alloc&) {
        refused = true;
      }
      allocations_left = kPlenty;
      REQUIRE(refused == large);
    }
  }
}

TEST_CASE("a log line for which there is no memory is lost, and the next one is written") {
  std::set_new_handler(nullptr);
  int ends[2] = {-1, -1};
  REQUIRE(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
  core::LogOptions options;
  options.format = core::LogFormat::kJsonLines;
  options.descriptor = ends[1];
  core::Log log(options);
  for (int64_t allocations = 0; allocations < 60; ++allocations) {
    allocations_left = allocations;
    log.write("here", FRT_LOG_ERROR, "a text that is too long to be kept inside of its object");
    allocations_left = kPlenty;
  }
  log.write("there", FRT_LOG_ERROR, "now");
  std::string written(std::size_t{1} << 16, '\0');
  const ssize_t count = read(ends[0], written.data(), written.size());
  close(ends[0]);
  close(ends[1]);
  REQUIRE(count > 0);
  written.resize(static_cast<std::size_t>(count) - 1);
  const auto last = nlohmann::json::parse(written.substr(written.rfind('\n') + 1));
  CHECK(last["source"] == "there");
  CHECK(last["text"] == "now");
}

}  // namespace frt::test
