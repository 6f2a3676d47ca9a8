// SPDX-License-Identifier: Apache-2.0
// Plugins with defects that hit whoever loads them, that hang, or that come twice.
#include <signal.h>
#include <sys/wait.h>

#include "trial.hpp"

using namespace broken;

TEST_CASE("a constructor that throws, crashes or exits does so in a child process") {
// Under clang's AddressSanitizer an exception gets through dlopen to who called it; elsewhere it
// ends the process.
#if defined(__clang__) && FRT_BUILD_SANITIZER == FRT_SANITIZER_ADDRESS
  constexpr frt_status kThrown = FRT_ERR_FORMAT;
  const std::vector<std::string> number = {"loading it threw an exception of unknown type"};
#else
  constexpr frt_status kThrown = FRT_ERR_INTERNAL;
  const std::vector<std::string> number = {"loading it ended the process with signal Aborted",
                                           "an instance of 'int'"};
#endif
  refuses(
      {
          {"model", "constructor_throws", kThrown, {"out of luck"}},
          {"model", "constructor_throws_number", kThrown, number},
          {"model",
           "constructor_aborts",
           FRT_ERR_INTERNAL,
           {"loading it ended the process with signal Aborted"}},
          {"model",
           "constructor_crashes",
           FRT_ERR_INTERNAL,
           {"loading it ended the process with signal Segmentation fault"}},
          {"model", "constructor_exits", FRT_ERR_INTERNAL, {"with exit status 3"}},
      },
      [](Trial& trial) { trial.probing = core::Probing::kUnlocked; });
}

TEST_CASE("a constructor that hangs is given up in a child process") {
  refuses({{"model", "constructor_hangs", FRT_ERR_INTERNAL, {"took longer than 200 ms"}}},
          [](Trial& trial) {
            trial.probing = core::Probing::kUnlocked;
            trial.trial_limit = std::chrono::milliseconds(200);
          });
}

TEST_CASE("a constructor that leaves a process behind is refused, and the process ended") {
  const std::string reason = "started a process that stays; start none before `open`";
  Trial place;
  const fs::path pid_file = place.folder() / "pid";
  ::setenv("FRT_TEST_PID", pid_file.c_str(), 1);
  refuses(
      {
          {"model", "constructor_forks", FRT_ERR_FORMAT, {reason}},
          {"model", "constructor_daemon", FRT_ERR_FORMAT, {reason}},
          {"model",
           "constructor_crashes_beside_child",
           FRT_ERR_INTERNAL,
           {"loading it ended the process with signal Aborted"}},
      },
      [](Trial& trial) { trial.probing = core::Probing::kUnlocked; });
  ::unsetenv("FRT_TEST_PID");
  // The daemon may have ended before it could say its number.
  if (!fs::exists(pid_file)) return;
  const std::string pid = io::read_file(pid_file, "pid", 64);
  if (!pid.empty()) CHECK(::kill(static_cast<pid_t>(std::stol(pid)), 0) != 0);
}

TEST_CASE("a process that another thread of the constructor started is ended, too") {
  Trial place;
  const fs::path pid_file = place.folder() / "pid";
  ::setenv("FRT_TEST_PID", pid_file.c_str(), 1);
  refuses({{"model",
            "constructor_forks_on_thread",
            FRT_ERR_FORMAT,
            {"started a process that stays; start none before `open`"}}},
          [](Trial& trial) { trial.probing = core::Probing::kUnlocked; });
  ::unsetenv("FRT_TEST_PID");
  const std::string pid = io::read_file(pid_file, "pid", 64);
  REQUIRE(!pid.empty());
  CHECK(::kill(static_cast<pid_t>(std::stol(pid)), 0) != 0);
}

TEST_CASE("a plugin that ends the program in a setup call is named, and the program failed") {
  Trial trial("device", "device_count_exits");
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    try {
      trial.run();
    } catch (...) {
      ::_exit(3);
    }
    ::_exit(2);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == EXIT_FAILURE);
  CHECK(trial.log().find("test.device: exit() was called inside its `device_count`") !=
        std::string::npos);
}

TEST_CASE("a plugin that crashes the program in a setup call is named") {
  Trial trial("model", "create_crashes");
  const fs::path said = trial.folder() / "stderr";
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const int file = ::open(said.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    ::dup2(file, STDERR_FILENO);
    ::signal(SIGABRT, SIG_DFL);  // instead of the test program's
    core::SetupWatch::name_crashes();
    try {
      trial.run();
    } catch (...) {
      ::_exit(3);
    }
    ::_exit(2);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGABRT);
  CHECK(io::read_file(said, "stderr", 4096) ==
        "error: plugin test.model: SIGABRT inside its `create`; leave the plugin out, or ask its "
        "author for a fix\n");
}

TEST_CASE("a plugin that is asked for its options is in the child process, too") {
  refuses(
      {
          {"model", "schema_throws", FRT_ERR_FORMAT, {"`extension` threw", "no options today"}},
          {"model",
           "schema_aborts",
           FRT_ERR_INTERNAL,
           {"its `extension` (frt.config-schema/1) ended the process with signal Aborted"}},
          {"model", "schema_exits", FRT_ERR_INTERNAL, {"its `extension`", "with exit status 0"}},
          {"model", "schema_null_list", FRT_ERR_FORMAT, {"the list is null"}},
      },
      [](Trial& trial) { trial.probing = core::Probing::kUnlocked; });
  refuses({{"model",
            "schema_hangs",
            FRT_ERR_INTERNAL,
            {"its `extension` (frt.config-schema/1) took longer than 2000 ms"}}},
          [](Trial& trial) {
            trial.probing = core::Probing::kUnlocked;
            trial.trial_limit = std::chrono::milliseconds(2000);
          });
}

TEST_CASE("a device that the card is not for is not chosen") {
  refuses({{"device",
            "device target mismatch",
            FRT_ERR_DEVICE,
            {"found no device", "for other_9, the device is null_1"},
            patch_card(kSummary, "targets = [\"other_9\"]")}},
          [](Trial& trial) { trial.manifest = manifest_of("auto", "test.model"); });
}

TEST_CASE("a plugin that the manifest names is used on any device, with a warning from its card") {
  struct Named {
    const char* plugin;
    std::string warning;
  };
  for (const Named& row :
       {Named{"device",
              "plugin 'test.device' on device 'd': its card says that it is for other_9, the "
              "device is null_1"},
        Named{"model",
              "plugin 'test.model' on device 'd': its card says that it is for other_9"}}) {
    CAPTURE(row.plugin);
    Trial trial(row.plugin, "", patch_card(kSummary, "targets = [\"other_9\"]"));
    CHECK_NOTHROW(trial.run());
    CHECK(trial.log().find(row.warning) != std::string::npos);
  }
  Trial fits("device", "", patch_card(kSummary, "targets = [\"null_1\"]"));
  CHECK_NOTHROW(fits.run());
  CHECK(fits.log().find("its card says") == std::string::npos);
}

TEST_CASE("a model without weights is asked for no capsule and no port") {
  for (const char* defect : {"capsule_no_state", "port_no_buffer"}) {
    CAPTURE(defect);
    Trial trial("model", defect);
    trial.flags = FRT_MODEL_WITHOUT_WEIGHTS;
    trial.use = [](const frt::Context&, const core::Runtime&, const core::RuntimeModel&) {};
    CHECK_NOTHROW(trial.run());
  }
}

TEST_CASE("the second file of an id is left out, and its reason names the first") {
  Trial trial;
  fs::copy_file(trial.folder() / "defect_model.so", trial.folder() / "twice.so");
  CHECK_NOTHROW(trial.run());
  CHECK(trial.rejected.find("defect_model.so' (--plugin-dir) comes first") != std::string::npos);
}

TEST_CASE("a plugin that hangs in a setup call is named with the call") {
  struct Hang {
    const char* plugin;
    const char* call;
  };
  for (const Hang& row :
       {Hang{"model", "dlopen"}, Hang{"model", "extension"}, Hang{"model", "open"},
        Hang{"model", "create"}, Hang{"model", "fingerprint"}, Hang{"model", "destroy"},
        Hang{"model", "close"}, Hang{"device", "device_count"}, Hang{"device", "device_info"},
        Hang{"device", "device_open"}, Hang{"device", "list"}, Hang{"device", "device_close"}}) {
    CAPTURE(row.call);
    Trial trial(row.plugin, std::string(row.call) + "_hangs");
    // The plugin hangs until the log says that it does.
    ::setenv("FRT_TEST_LOG", trial.log_path().c_str(), 1);
    trial.patience = std::chrono::milliseconds(20);
    CHECK_NOTHROW(trial.run());
    CHECK(trial.log().find("test." + std::string(row.plugin) + ": its `" + row.call +
                           "` has not returned") != std::string::npos);
  }
  ::unsetenv("FRT_TEST_LOG");
}

TEST_CASE("the calls that choose an automatic device are watched") {
  for (const char* call : {"device_count", "device_info"}) {
    CAPTURE(call);
    Trial trial("device", std::string(call) + "_hangs");
    trial.manifest = manifest_of("auto", "test.model");
    ::setenv("FRT_TEST_LOG", trial.log_path().c_str(), 1);
    trial.patience = std::chrono::milliseconds(20);
    CHECK_NOTHROW(trial.run());
    CHECK(trial.log().find(std::string("its `") + call + "` has not returned") !=
          std::string::npos);
  }
  ::unsetenv("FRT_TEST_LOG");
}
