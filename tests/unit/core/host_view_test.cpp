// SPDX-License-Identifier: Apache-2.0
// frt/plugin.hpp: what a plugin makes of the tables and options that a host gives it. A host of
// another version, or a broken one, is read as far as it goes or refused.
#include <doctest/doctest.h>

#include <cstring>
#include <frt/plugin.hpp>
#include <string>
#include <vector>

#include "rig.hpp"

namespace {

// A host that offers what is set here.
struct TestHost {
  frt_log_v1 log{sizeof(frt_log_v1), 0, this, write};
  frt_progress_v1 progress{sizeof(frt_progress_v1), 0, this, report};
  frt_host table{sizeof(frt_host), FRT_ABI_MAJOR, FRT_ABI_MINOR, this, extension};
  bool has_tables = true;
  std::vector<std::string> lines;

  static void write(void* self, const char*, frt_log_level, const char* text) {
    static_cast<TestHost*>(self)->lines.emplace_back(text);
  }
  static frt_status report(void*, const char*, uint32_t, uint64_t done, uint64_t total) {
    return done == total ? FRT_OK : FRT_ERR_CANCELLED;
  }
  static const void* extension(void* self, const char* id) {
    const auto& host = *static_cast<TestHost*>(self);
    if (!host.has_tables) return nullptr;
    if (std::strcmp(id, FRT_EXT_LOG) == 0) return &host.log;
    return std::strcmp(id, FRT_EXT_PROGRESS) == 0 ? &host.progress : nullptr;
  }
};

constexpr frt_config_value kValues[] = {{"width", FRT_CONFIG_INT, 0, 7, 0, nullptr},
                                        {nullptr, FRT_CONFIG_INT, 0, 8, 0, nullptr}};

}  // namespace

TEST_CASE("a plugin reads the log and the progress of its host as far as they go") {
  TestHost given;
  const frt::Host host(&given.table);
  host.log(FRT_LOG_INFO, "hello");
  CHECK(given.lines == std::vector<std::string>{"hello"});
  CHECK_NOTHROW(host.progress("weights", FRT_PROGRESS_BYTES, 1, 1));
  CHECK_FAILS(FRT_ERR_CANCELLED, "weights", host.progress("weights", FRT_PROGRESS_BYTES, 0, 1));

  TestHost poor;
  poor.has_tables = false;
  const frt::Host none(&poor.table);
  none.log(FRT_LOG_INFO, "hello");
  CHECK_NOTHROW(none.progress("weights", FRT_PROGRESS_BYTES, 0, 1));
  CHECK(poor.lines.empty());
}

TEST_CASE("a host whose log or progress cannot be read is refused before the first message") {
  const auto refused = [](const std::string& why, void (*spoil)(TestHost&)) {
    TestHost given;
    spoil(given);
    CHECK_FAILS(FRT_ERR_ABI, why, (void)frt::Host(&given.table));
  };
  refused("the host: its frt.log/1 says that it has 3 bytes",
          [](TestHost& host) { host.log.struct_size = 3; });
  refused("the host: its frt.log/1 has no write", [](TestHost& host) { host.log.write = nullptr; });
  refused("the host: its frt.progress/1 says that it has 4294967295 bytes",
          [](TestHost& host) { host.progress.struct_size = 0xffffffff; });
  refused("the host: its frt.progress/1 has no report",
          [](TestHost& host) { host.progress.report = nullptr; });
  refused("the host: its frt_host has no extension",
          [](TestHost& host) { host.table.extension = nullptr; });
  CHECK_FAILS(FRT_ERR_ABI, "its frt_host is NULL", (void)frt::Host(nullptr));
}

TEST_CASE("options are read as far as they go, and refused where they cannot be") {
  struct {
    frt_config config;
    uint64_t later;
  } newer{{sizeof(newer), 1, kValues}, ~uint64_t{0}};
  const frt::ConfigView view(&newer.config);
  CHECK(view.get_int("width") == 7);
  CHECK_FALSE(view.has("height"));
  CHECK_FALSE(frt::ConfigView(nullptr).has("width"));

  const auto refused = [](const std::string& why, const frt_config& config) {
    CHECK_FAILS(FRT_ERR_ABI, why, (void)frt::ConfigView(&config));
  };
  refused("the host: its frt_config says that it has 8 bytes", {8, 1, kValues});
  refused("frt_config has 1 values, of which", {sizeof(frt_config), 1, nullptr});
  refused("frt_config has 2 values, of which", {sizeof(frt_config), 2, kValues});
}
