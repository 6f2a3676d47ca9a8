// SPDX-License-Identifier: Apache-2.0
// Plugins that are wrong in one way each; FRT_TEST_BREAKAGE says in which.
#include <frt/config.h>
#include <frt/plugin.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#define BREAK_ABORTS 1
#define BREAK_HANGS 2
#define BREAK_EXITS 3
#define BREAK_ABI 4
#define BREAK_SMALL 5
#define BREAK_OTHER_ID 6
#define BREAK_EMPTY_MEMBER 7
#define BREAK_SCHEMA 8
#define BREAK_NO_SYMBOL 9
#define BREAK_NULL_PLUGIN 10
#define BREAK_CARD_KEY 11
#define BREAK_CARD_ABI 12
#define BREAK_OTHER_VERSION 13
#define BREAK_OTHER_KIND 14
#define BREAK_OPEN_THROWS 15
#define BREAK_NUMERICS 16
#define BREAK_HELD 17

#if FRT_TEST_BREAKAGE == BREAK_CARD_KEY
#define EXTRA "targts = [\"x\"]\n"
#elif FRT_TEST_BREAKAGE == BREAK_ABORTS
#define EXTRA "requires = [\"driver>=5\", \"luck\"]\n"
#else
#define EXTRA ""
#endif
#if FRT_TEST_BREAKAGE == BREAK_CARD_ABI
#define ABI "7.0"
#else
#define ABI "0.9"
#endif

FRT_PLUGIN_CARD("id = \"test.broken\"\nkind = \"model\"\nabi = \"" ABI
                "\"\nversion = \"1\"\n" EXTRA);

namespace {

#if FRT_TEST_BREAKAGE == BREAK_ABORTS
struct Constructor {
  Constructor() {
    std::fputs("no driver found\n", stderr);
    std::abort();
  }
} constructor;
#elif FRT_TEST_BREAKAGE == BREAK_HANGS
struct Constructor {
  Constructor() { std::this_thread::sleep_for(std::chrono::seconds(60)); }
} constructor;
#elif FRT_TEST_BREAKAGE == BREAK_EXITS
struct Constructor {
  Constructor() { std::_Exit(3); }
} constructor;
#elif FRT_TEST_BREAKAGE == BREAK_HELD
// A child of its own traces this process, so that nobody can wait for it, as if a driver held it.
// FRT_TEST_HOLD: three descriptors. The child writes into the first whether it may trace, and lets
// go at the end of the second, whose writing end is the third.
struct Constructor {
  Constructor() {
    const char* hold = std::getenv("FRT_TEST_HOLD");
    int answer = -1, until = -1, held = -1;
    if (!hold || std::sscanf(hold, "%d %d %d", &answer, &until, &held) != 3) return;
    ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    const pid_t self = ::getpid();
    if (::fork() == 0) {
      ::setsid();  // not of the group that is killed
      ::close(held);
      char byte = ::ptrace(PTRACE_SEIZE, self, nullptr, nullptr) == 0 ? 'y' : 'n';
      if (::write(answer, &byte, 1) != 1) ::_exit(1);
      while (::read(until, &byte, 1) > 0) {
      }
      ::_exit(0);
    }
    for (;;) ::pause();
  }
} constructor;
#endif

[[maybe_unused]] frt_status open(const frt_host*, const frt_config*, frt_plugin* plugin,
                                 frt_error*) {
#if FRT_TEST_BREAKAGE == BREAK_OPEN_THROWS
  throw std::runtime_error("no key in the lock");
#endif
  *plugin = nullptr;
  return FRT_OK;
}
[[maybe_unused]] void close(frt_plugin) {}
#if FRT_TEST_BREAKAGE == BREAK_SCHEMA
const frt_config_option kOptions[] = {
    {"threads", FRT_CONFIG_INT, 0, "many", nullptr, 0, 0, "a default of the wrong type"}};
const frt_config_schema_v1 kSchema = {sizeof(kSchema), 0, nullptr, 0, kOptions, 1};
const void* extension(frt_plugin, const char*) {
  return &kSchema;
}
#elif FRT_TEST_BREAKAGE == BREAK_NUMERICS
const frt_config_option kOptions[] = {{"exact", FRT_CONFIG_BOOL, FRT_OPTION_NUMERICS, "true",
                                       nullptr, 0, 0, "a model's option that only backends have"}};
const frt_config_schema_v1 kSchema = {sizeof(kSchema), 0, nullptr, 0, kOptions, 1};
const void* extension(frt_plugin, const char*) {
  return &kSchema;
}
#else
[[maybe_unused]] const void* extension(frt_plugin, const char*) {
  return nullptr;
}
#endif

}  // namespace

#if FRT_TEST_BREAKAGE != BREAK_NO_SYMBOL
extern "C" {
__attribute__((visibility("default"))) extern const frt_plugin_desc frt_plugin_v1;
__attribute__((used)) const frt_plugin_desc frt_plugin_v1 = {
    FRT_TEST_BREAKAGE == BREAK_SMALL ? 16 : sizeof(frt_plugin_desc),
    FRT_TEST_BREAKAGE == BREAK_ABI ? 2 : FRT_ABI_MAJOR,
    FRT_ABI_MINOR,
    FRT_TEST_BREAKAGE == BREAK_OTHER_KIND ? FRT_PLUGIN_BACKEND : FRT_PLUGIN_MODEL,
    FRT_BUILD_SANITIZER,
    FRT_TEST_BREAKAGE == BREAK_OTHER_ID ? "test.other" : "test.broken",
    FRT_TEST_BREAKAGE == BREAK_OTHER_VERSION ? "2" : "1",
    "test",
    FRT_TEST_BREAKAGE == BREAK_EMPTY_MEMBER ? nullptr : &open,
    &close,
    &extension};
}
#endif
