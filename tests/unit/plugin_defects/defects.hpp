// SPDX-License-Identifier: Apache-2.0
// defects.hpp - what the plugins with defects share: which defect this copy of the file has, and a
// card and a descriptor that can have one.
//
// A copy of the file is loaded once, so each has the defect that FRT_TEST_DEFECT named at that
// moment ("open_throws"); none if it is not set.
#pragma once

#include <frt/plugin.h>
#include <frt/plugin.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <future>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

namespace defects {

inline const std::string& defect() {
  static const std::string kDefect = [] {
    const char* named = std::getenv("FRT_TEST_DEFECT");
    return std::string(named ? named : "");
  }();
  return kDefect;
}

inline bool is(std::string_view name) {
  return defect() == name;
}

// A code that no version defines, with or without a text.
inline constexpr frt_status kUnknownStatus = 12345;

// Sizes that nobody means.
template <class Table>
void change_size(Table& table, const std::string& name) {
  if (is(name + "_size_3")) table.struct_size = 3;
  if (is(name + "_size_deadbeef")) table.struct_size = 0xdeadbeef;
  if (is(name + "_size_huge")) table.struct_size = 0xffffffff;
}

// What no text is.
inline constexpr const char* kGarbage = "\xff\xfe\x1b[2J";

// 3,000 bytes, three a character, so that a cut at any byte but one in three halves one.
inline std::string long_text() {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "\u4e2d";
  return text;
}

// Hangs until the host's log, FRT_TEST_LOG, says that `call` does.
inline void hang(const char* call) {
  const char* path = std::getenv("FRT_TEST_LOG");
  const std::string notice = "its `" + std::string(call) + "` has not returned";
  for (;;) {
    std::ifstream file(path ? path : "");
    const std::string log{std::istreambuf_iterator<char>(file), {}};
    if (log.find(notice) != std::string::npos) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// The same in a call whose defect is "<call>_hangs".
inline void may_hang(const char* call) {
  if (is(std::string(call) + "_hangs")) hang(call);
}

// What a plugin may do to the host when it is asked for its options, before it is open.
inline void misbehave_when_asked() {
  if (is("schema_throws")) throw std::runtime_error("no options today");
  if (is("schema_aborts")) std::abort();
  if (is("schema_exits")) std::_Exit(0);
  if (is("schema_hangs")) std::this_thread::sleep_for(std::chrono::seconds(600));
  may_hang("extension");
}

// One table of each kind, with the defect.
template <class Table, class Change>
const void* with_defect(const Table& table, const std::string& name, Change&& change) {
  static Table kept;
  kept = table;
  change_size(kept, name);
  change(kept);
  return &kept;
}

// A process that detaches itself; FRT_TEST_PID names the file that gets its number.
inline void start_daemon() {
  if (::fork() != 0) return;
  ::setsid();
  if (::fork() != 0) ::_exit(0);
  std::ofstream(std::getenv("FRT_TEST_PID")) << ::getpid() << std::flush;
  if (is("constructor_daemon_hangs")) std::fputs("hangs\n", stderr);
  std::this_thread::sleep_for(std::chrono::seconds(600));
  ::_exit(0);
}

// The same, started by a thread that stays.
inline void start_child_on_thread() {
  std::promise<void> started;
  std::thread([&started] {
    const pid_t child = ::fork();
    if (child == 0) {
      ::setsid();
      std::this_thread::sleep_for(std::chrono::seconds(600));
      ::_exit(0);
    }
    std::ofstream(std::getenv("FRT_TEST_PID")) << child << std::flush;
    started.set_value();
    std::this_thread::sleep_for(std::chrono::seconds(600));
  }).detach();
  started.get_future().wait();
}

// Takes every open file for its own: blocking, and with lines that its owner may understand.
inline void write_to_all_files(const std::string& lines) {
  for (int file = 3; file < 64; ++file) {
    ::fcntl(file, F_SETFL, ::fcntl(file, F_GETFL) & ~O_NONBLOCK);
    for (std::string_view rest = lines; !rest.empty();) {
      const ssize_t put = ::write(file, rest.data(), rest.size());
      if (put <= 0) break;
      rest.remove_prefix(static_cast<std::size_t>(put));
    }
  }
}

// What a constructor of the file does as it is loaded.
struct Constructor {
  Constructor() {
    if (is("constructor_throws")) throw std::runtime_error("out of luck");
    if (is("constructor_throws_number")) throw 42;
    if (is("constructor_aborts")) std::abort();
    if (is("constructor_crashes")) std::raise(SIGSEGV);
    if (is("atexit_aborts")) std::atexit([] { std::abort(); });
    if (is("constructor_exits")) std::_Exit(3);
    if (is("constructor_hangs")) std::this_thread::sleep_for(std::chrono::seconds(600));
    if (is("dlopen_hangs")) hang("dlopen");
    if (is("constructor_forks")) static_cast<void>(::fork());
    if (is("constructor_daemon")) start_daemon();
    if (is("constructor_daemon_hangs")) {
      start_daemon();
      std::this_thread::sleep_for(std::chrono::seconds(600));
    }
    if (is("constructor_writes_to_all_files")) {
      const std::string deep(100000, '[');
      write_to_all_files(
          "{\"end\": \"none\"}\n{\"begin\": 99999}\n{\"stop\": 5}\n{\"device\": 5}\n"
          "{\"end\": 3, \"result\": [], \"message\": " +
          deep + std::string(deep.size(), ']') + "}\n");
    }
    if (is("constructor_forges")) {
      write_to_all_files("{\"end\": 0, \"result\": \"ok\", \"message\": \"\"}\n");
    }
    if (is("constructor_reads")) static_cast<void>(std::getchar());
    if (is("constructor_forks_on_thread")) start_child_on_thread();
    if (is("constructor_crashes_beside_child")) {
      if (::fork() == 0) std::this_thread::sleep_for(std::chrono::seconds(600));
      std::abort();
    }
  }
};

}  // namespace defects

// The card and a descriptor that is changed at load. A test overwrites what lies beside the
// summary, whose length makes room.
#define DEFECT_PLUGIN(Class, word, plugin_id)                                             \
  static const defects::Constructor defect_constructor;                                   \
  FRT_PLUGIN_CARD(                                                                        \
      "id = \"" plugin_id "\"\nkind = \"" #word                                           \
      "\"\nversion = \"1\"\nabi = \"" FRT_PLUGIN_TEXT(FRT_ABI_MAJOR) "." FRT_PLUGIN_TEXT( \
          FRT_ABI_MINOR) "\"\nsummary = \"------------------------\"\n");                 \
  extern "C" __attribute__((visibility("default"))) frt_plugin_desc frt_plugin_v1;        \
  frt_plugin_desc frt_plugin_v1 = [] {                                                    \
    using Functions = frt::detail::PluginTrampolines<Class>;                              \
    frt_plugin_desc d = {sizeof(frt_plugin_desc),                                         \
                         FRT_ABI_MAJOR,                                                   \
                         FRT_ABI_MINOR,                                                   \
                         FRT_PLUGIN_KIND_##word,                                          \
                         FRT_BUILD_SANITIZER,                                             \
                         plugin_id,                                                       \
                         "1",                                                             \
                         "test",                                                          \
                         &Class::open,                                                    \
                         &Functions::close,                                               \
                         &Class::any_extension};                                          \
    defects::change_size(d, "descriptor");                                                \
    if (defects::is("descriptor_newer_major")) ++d.abi_major;                             \
    if (defects::is("descriptor_newer_minor")) ++d.abi_minor;                             \
    if (defects::is("descriptor_no_open")) d.open = nullptr;                              \
    if (defects::is("descriptor_no_id")) d.id = nullptr;                                  \
    if (defects::is("descriptor_no_build")) d.build = nullptr;                            \
    if (defects::is("descriptor_garbage_version")) d.version = defects::kGarbage;         \
    if (defects::is("descriptor_other_id")) d.id = "test.other";                          \
    if (defects::is("descriptor_other_kind")) d.kind = 7;                                 \
    return d;                                                                             \
  }()
