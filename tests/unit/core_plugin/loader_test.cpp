// SPDX-License-Identifier: Apache-2.0
// Loading and opening plugins, trials in a child process, and every way a file can be wrong.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <frt/core/digest.hpp>
#include <frt/core/plugin.hpp>
#include <frt/core/services.hpp>
#include <future>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "file_digest.hpp"
#include "helpers.hpp"
#include "plugins/probe_table.hpp"

using namespace frt::core;
using test::broken;
using test::error_of;
using test::has;

namespace {

LogOptions silent() {
  LogOptions options;
  options.descriptor = -1;
  return options;
}

Config options_of(const LoadedPlugin& plugin, std::vector<RawSetting> given = {}) {
  Diagnostics diagnostics;
  Config config = resolve_config(plugin.schema.plugin_options, given, {}, diagnostics);
  diagnostics.throw_if_errors();
  return config;
}

RawSetting flag(const char* key, const char* value) {
  RawSetting setting;
  setting.key = key;
  setting.value = {RawValue::Kind::kUntyped, 0, 0, value};
  return setting;
}

}  // namespace

TEST_CASE("a good plugin loads, opens with its options, and gets the host's tables") {
  const LoadedPlugin& loaded = load_plugin({test::kGoodModel, {}});
  CHECK(loaded.card.id == "test.model");
  CHECK(loaded.descriptor->kind == FRT_PLUGIN_MODEL);
  CHECK(loaded.digest.empty());
  CHECK(loaded.schema.options.size() == 7);
  CHECK(&load_plugin({test::kGoodModel, {}}) == &loaded);

  Log log(silent());
  std::set<std::string> reported;
  HostServices services(log,
                        [&](std::string_view source, std::string_view phase, uint32_t unit,
                            uint64_t done, uint64_t total) -> frt_status {
                          reported.insert(std::string(source) + " " + std::string(phase));
                          CHECK(unit == FRT_PROGRESS_BYTES);
                          CHECK(done == 1);
                          CHECK(total == 2);
                          return FRT_OK;
                        });
  const OpenPlugin open(loaded, options_of(loaded, {flag("threads", "7")}), services);
  const auto& probe = open.require<ProbeTable>(kProbeId);
  CHECK(probe.threads == 7);
  CHECK(probe.exec);
  CHECK(probe.state);
  CHECK_FALSE(probe.nothing);
  CHECK(reported == std::set<std::string>{"test.model weights"});
  CHECK(open.find<ProbeTable>("test.probe/2") == nullptr);
  CHECK(open.find<ProbeTable>("test.probe/1 ") == nullptr);
  const frt::Error error = error_of([&] { open.require<ProbeTable>("test.probe/2"); });
  CHECK(error.status() == FRT_ERR_UNSUPPORTED);
  CHECK(has(error.what(), "test.model offers no test.probe/2"));
}

TEST_CASE("what open throws arrives with the plugin's id, and so does a cancelled start") {
  const LoadedPlugin& loaded = load_plugin({test::kGoodModel, {}});
  Log log(silent());
  HostServices services(log);
  const frt::Error error = error_of(
      [&] { OpenPlugin(loaded, options_of(loaded, {flag("fail_open", "true")}), services); });
  CHECK(error.status() == FRT_ERR_UNSUPPORTED);
  CHECK(has(error.what(), "plugin test.model: asked not to open"));
  HostServices stopping(log, [](auto...) -> frt_status { return FRT_ERR_CANCELLED; });
  CHECK(error_of([&] { OpenPlugin(loaded, options_of(loaded), stopping); }).status() ==
        FRT_ERR_CANCELLED);
}

TEST_CASE("a plugin that reports success without an object is refused") {
  const LoadedPlugin& loaded = load_plugin({broken("null_plugin"), {}});
  Log log(silent());
  HostServices services(log);
  CHECK(has(error_of([&] { OpenPlugin(loaded, Config(), services); }).what(), "made no object"));
}

TEST_CASE("what open throws across the ABI becomes an error that names the plugin") {
  const LoadedPlugin& loaded = load_plugin({broken("open_throws"), {}});
  Log log(silent());
  HostServices services(log);
  const frt::Error error = error_of([&] { OpenPlugin(loaded, Config(), services); });
  CHECK(error.status() == FRT_ERR_INTERNAL);
  CHECK(has(error.what(), "plugin test.broken: its `open` threw across the ABI: no key in the"));
}

TEST_CASE("each broken descriptor is refused with its own reason") {
  const auto refusal = [](const char* name) {
    return error_of([&] { load_plugin({broken(name), {}}); });
  };
  frt::Error error = refusal("abi");
  CHECK(error.status() == FRT_ERR_ABI);
  CHECK(has(error.what(), "its descriptor speaks ABI 2.9, this host 0.9"));
  CHECK(has(refusal("small").what(), "its descriptor frt_plugin_v1 says that it has 16 bytes"));
  CHECK(has(refusal("other_id").what(), "disagree on the id: 'test.broken' and 'test.other'"));
  CHECK(has(refusal("other_version").what(), "disagree on the version: '1' and '2'"));
  CHECK(has(refusal("other_kind").what(), "disagree on the kind: 'model' and 'backend'"));
  CHECK(has(refusal("empty_member").what(), "has no open"));
  CHECK(has(refusal("no_symbol").what(), "exports no frt_plugin_v1"));
  CHECK(has(refusal("card_key").what(), "did you mean `targets`?"));
  CHECK(refusal("card_abi").status() == FRT_ERR_ABI);
  error = refusal("numerics");
  CHECK(error.status() == FRT_ERR_FORMAT);
  CHECK(has(error.what(), "its option 'exact' is FRT_OPTION_NUMERICS, which is for backends"));
  error = refusal("schema");
  CHECK(error.status() == FRT_ERR_FORMAT);
  CHECK(has(error.what(), "the default of 'threads'"));
  // A refused library stays refused.
  CHECK(has(refusal("abi").what(), "ABI 2.9"));
}

TEST_CASE("a plugin with an undefined symbol is refused in the linker's own words") {
  // A function of the C library that the plugin imports, called by a name that there is not.
  std::string bytes = test::read(test::kGoodModel);
  const std::string imported = std::string(1, '\0') + "strlen" + std::string(1, '\0');
  std::size_t at = bytes.find(imported);
  REQUIRE(at != std::string::npos);
  for (; at != std::string::npos; at = bytes.find(imported, at)) bytes[at + 6] = 'q';
  const test::Folder folder;
  const auto path = folder.write("undefined.so", bytes);
  const frt::Error error = error_of([&] { load_plugin({path, {}}); });
  CHECK(error.status() == FRT_ERR_FORMAT);
  CHECK(has(error.what(), "undefined symbol: strleq"));
  CHECK(std::string(error.what()).find("file descriptor") == std::string::npos);
}

TEST_CASE("a file with a wrong digest is refused before any of its code runs") {
  const std::string digest = test::file_digest(test::kGoodModel);
  const test::Folder folder;
  const auto copy = folder.path() / "copy.so";
  std::filesystem::copy_file(test::kGoodModel, copy);
  const frt::Error error = error_of([&] { load_plugin({copy, std::string(64, '0')}); });
  CHECK(error.status() == FRT_ERR_MISMATCH);
  CHECK(has(error.what(), digest));
  CHECK(load_plugin({copy, digest}).digest == digest);
  // Loading the file a second time checks again, although it is mapped already.
  CHECK(error_of([&] { load_plugin({copy, std::string(64, '0')}); }).status() == FRT_ERR_MISMATCH);
  // The constructor of this one would end the process.
  CHECK(error_of([&] {
          load_plugin({broken("aborts"), std::string(64, '0')});
        }).status() == FRT_ERR_MISMATCH);
}

TEST_CASE("a trial reports what became of the plugin, and this process lives on") {
  CHECK(probe_in_child(test::kGoodModel).verdict == ProbeVerdict::kOk);

  ProbeResult result = probe_in_child(broken("aborts"));
  CHECK(result.verdict == ProbeVerdict::kCrashed);
  CHECK(has(result.detail, "ended the process"));
  CHECK(has(result.detail, "no driver found"));

  result = probe_in_child(broken("exits"));
  CHECK(result.verdict == ProbeVerdict::kCrashed);
  CHECK(has(result.detail, "exit status 3"));

  result = probe_in_child(broken("abi"));
  CHECK(result.verdict == ProbeVerdict::kRefused);
  CHECK(has(result.detail, "ABI 2.9"));

  result = probe_in_child(broken("hangs"), std::chrono::milliseconds(300));
  CHECK(result.verdict == ProbeVerdict::kTimeout);

  CHECK(probe_in_child("/nowhere/x.so").verdict == ProbeVerdict::kRefused);
}

TEST_CASE("a trial in a program that ignores the end of its children has the same verdicts") {
  struct sigaction ignored {
  }, before{};
  ignored.sa_handler = SIG_IGN;
  REQUIRE(::sigaction(SIGCHLD, &ignored, &before) == 0);
  const ProbeResult good = probe_in_child(test::kGoodModel);
  const ProbeResult refused = probe_in_child(broken("abi"));
  const ProbeResult crashed = probe_in_child(broken("aborts"));
  const ProbeResult late = probe_in_child(broken("hangs"), std::chrono::milliseconds(300));
  ::sigaction(SIGCHLD, &before, nullptr);
  CHECK(good.verdict == ProbeVerdict::kOk);
  CHECK(refused.verdict == ProbeVerdict::kRefused);
  CHECK(has(refused.detail, "ABI 2.9"));
  CHECK(crashed.verdict == ProbeVerdict::kCrashed);
  CHECK(
      has(crashed.detail, "ended the process; how is not known, for this program ignores SIGCHLD"));
  CHECK(has(crashed.detail, "no driver found"));
  CHECK(late.verdict == ProbeVerdict::kTimeout);
  CHECK(has(late.detail, "took longer than 300 ms"));
}

TEST_CASE("a trial gives up a process that does not end when it is killed") {
  int answer[2], hold[2];
  REQUIRE(::pipe(answer) == 0);
  REQUIRE(::pipe(hold) == 0);
  const std::string descriptors =
      std::to_string(answer[1]) + " " + std::to_string(hold[0]) + " " + std::to_string(hold[1]);
  ::setenv("FRT_TEST_HOLD", descriptors.c_str(), 1);
  const ProbeResult result =
      probe_in_child(broken("held"), std::chrono::seconds(2), std::chrono::milliseconds(50));
  ::unsetenv("FRT_TEST_HOLD");
  CHECK(result.verdict == ProbeVerdict::kTimeout);
  // What holds it lets go.
  for (const int descriptor : {answer[1], hold[0], hold[1]}) ::close(descriptor);
  char traced = 'n';
  REQUIRE(::read(answer[0], &traced, 1) == 1);
  ::close(answer[0]);
  if (traced == 'y') {
    CHECK(has(result.detail, "does not end although it was killed"));
    CHECK(::waitpid(-1, nullptr, 0) > 0);  // it is this process's child still
  } else {
    MESSAGE("this system lets no process trace another one");
  }
}

TEST_CASE("trials leave no open files behind") {
  const auto lowest_free = [] {
    const int descriptor = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::close(descriptor);
    return descriptor;
  };
  const int before = lowest_free();
  probe_in_child(broken("abi"));
  probe_in_child(broken("exits"));
  CHECK(lowest_free() == before);
}

TEST_CASE("threads load files one at a time, and a trial waits for its turn") {
  using namespace std::chrono_literals;
  const test::Folder folder;
  const std::string bytes = test::read(test::kGoodModel);
  std::atomic<int> inside{0}, overlaps{0}, loaded{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    LoadRequest request;
    request.path = folder.write("copy" + std::to_string(i) + ".so", bytes);
    request.entering = [&](const char*) {
      if (++inside > 1) ++overlaps;
      std::this_thread::sleep_for(5ms);
      --inside;
    };
    threads.emplace_back([&loaded, request] {
      if (load_plugin(request).card.id == "test.model") ++loaded;
      if (load_plugin(request).path == request.path) ++loaded;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(loaded == 8);
  CHECK(overlaps == 0);

  auto alone = lock_plugin_setup();
  auto trial = std::async(std::launch::async, [] { return probe_in_child(test::kGoodModel); });
  CHECK(trial.wait_for(500ms) == std::future_status::timeout);
  alone.unlock();
  CHECK(trial.get().verdict == ProbeVerdict::kOk);
}
