// SPDX-License-Identifier: Apache-2.0
// plugin.hpp - one plugin file: its card, read without loading; how well it fits a device; a trial
// in a child process; loading; opening.
//
// The order is deliberate: everything that can be refused is refused before an instruction of the
// plugin runs. read_image() looks at bytes only. probe_in_child() runs the plugin's constructors
// and asks for its options where a crash costs nothing. load_plugin() maps the file into this
// process, for ever: files are never unloaded, because destructors of libraries crash and pointers
// into them outlive them.
//
// Threads: any thread may call what is [setup] here, and other threads may exist. What runs code of
// a plugin holds lock_plugin_setup() (setup_lock.hpp): loading a library and starting a driver on
// two threads can deadlock. A trial forks, which asks for more: see there.
#pragma once

#include <frt/plugin.h>
#include <frt/contracts.hpp>
#include <frt/core/config.hpp>
#include <frt/core/setup_lock.hpp>
#include <frt/sender.hpp>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace frt::core {

// ---- the card -------------------------------------------------------------------------------

struct Card {
  std::string id;
  uint32_t kind = 0;  // FRT_PLUGIN_BACKEND, _MODEL or _ENVIRONMENT
  uint32_t abi_major = 0, abi_minor = 0;
  std::string version;
  std::vector<std::string> targets;   // device architectures with machine code; empty: any
  std::vector<std::string> portable;  // least architectures that portable code is translated for
  std::vector<std::string> requirements;
  std::vector<std::string> model_types;  // of a model: of the checkpoints that it takes
  std::string summary;
  bool operator==(const Card&) const = default;
};

// "backend", "model", "environment", "?".  [any]
const char* plugin_kind_name(uint32_t kind) noexcept;

struct AbiVersion {
  uint32_t major = FRT_ABI_MAJOR, minor = FRT_ABI_MINOR;
};

// Parses the text of a card for a host of version `host`. Strict: unknown, missing and ill-typed
// keys are refused, all in one message; a card of a later minor version may have keys more. Throws
// FRT_ERR_FORMAT; FRT_ERR_ABI if it was built for a version that does not work with the host's
// (frt/version.hpp). `name` (the file) is for messages.  [any]
Card parse_card(std::string_view text, const std::string& name, AbiVersion host = {});

// What the bytes of a shared object say.
struct PluginImage {
  Card card;
  uint32_t sanitizer = FRT_SANITIZER_NONE;  // by the runtime symbols it imports
};

// Reads card and sanitizer from an ELF file without loading it: some table reads, whatever the
// size of the file. Throws FRT_ERR_NOT_FOUND, FRT_ERR_IO; FRT_ERR_FORMAT for what is no 64-bit
// little-endian shared object or is truncated; FRT_ERR_MISMATCH for another processor or operating
// system; FRT_ERR_UNSUPPORTED if there is no card (a library, not a plugin).  [setup]
PluginImage read_image(const std::filesystem::path& path);
// The same of an open file.
PluginImage read_image(int descriptor, const std::string& name);

// Why this host cannot take a plugin built with `sanitizer`, with advice; empty if it can.  [any]
std::string sanitizer_refusal(uint32_t sanitizer);

// ---- ranking --------------------------------------------------------------------------------

// Better first. What fits is said by the card alone (frt/plugin.h): core knows no vendor's rule of
// which architecture runs the code of which other.
enum class Fit {
  kExact,     // machine code for this very architecture
  kPortable,  // portable code that the driver translates for it
  kAny,       // the card names neither
  kNone       // does not run here
};

// How `card` fits a device of `architecture`, with the reason in words for people. Among cards with
// portable code the one for the newest devices is best: `newest` is the number in that name; 0 for
// every other fit.
struct Ranking {
  Fit fit = Fit::kNone;
  std::string reason;
  uint32_t newest = 0;

  bool better_than(const Ranking& other) const {
    return fit != other.fit ? fit < other.fit : newest > other.newest;
  }
};
Ranking rank_card(const Card& card, std::string_view architecture);  // [any]
// A name that `portable` of a card may have: letters that end in a number, or "*".  [any]
bool is_portable_target(std::string_view name);

// ---- trial ----------------------------------------------------------------------------------

enum class ProbeVerdict { kOk, kRefused, kCrashed, kTimeout };

struct ProbeResult {
  ProbeVerdict verdict = ProbeVerdict::kRefused;
  std::string detail;  // the reason; with the last line that the plugin wrote to stderr
  std::vector<std::string> mapped;  // of a good one: the files that loading it mapped; may be empty
};

// Loads the file, checks its descriptor and asks for its option schema in a child process, and
// reports what became of it. The child is a fork of this process (not another program, so that it
// works in every program that embeds core) and never returns from this call; hence no other thread
// should be running: what a thread holds at the fork (a lock of the allocator, of the dynamic
// linker) stays held in the child, whose trial then takes too long. The trial lasts `timeout` at
// most; a child that has not ended `end_limit` after it was killed, because a driver holds it, is
// left alone: kTimeout. Holds lock_plugin_setup().  [setup]
ProbeResult probe_in_child(const std::filesystem::path& path,
                           std::chrono::milliseconds timeout = std::chrono::seconds(10),
                           std::chrono::milliseconds end_limit = std::chrono::seconds(5));

// ---- loading --------------------------------------------------------------------------------

// A plugin in this process. Lives until the process ends.
struct LoadedPlugin {
  std::filesystem::path path;
  Card card;
  std::shared_ptr<const frt_plugin_desc> descriptor;  // a checked copy of the plugin's
  ConfigSchema schema;
  std::string digest;  // SHA-256 in hex, if it was asked for
};

struct LoadRequest {
  std::filesystem::path path;
  // The digest the file must have; empty: any. With a digest the file is opened once, hashed, and
  // that open file is loaded, so that it cannot be exchanged in between. (Such a plugin cannot
  // find libraries through $ORIGIN.)
  std::string digest;
  // Told which call of the plugin comes next, once dlopen is over; may be empty.
  std::function<void(const char* call)> entering{};
};

// Maps the file and checks it: card, machine, sanitizer, digest, then the descriptor against the
// card, then the schema. A file that is loaded already is returned again. Throws FRT_ERR_ABI,
// FRT_ERR_MISMATCH, FRT_ERR_FORMAT, FRT_ERR_NOT_FOUND, FRT_ERR_IO. Holds lock_plugin_setup().
// [setup]
const LoadedPlugin& load_plugin(const LoadRequest& request);

// A checked copy of a descriptor, zero where the plugin's ends. Throws FRT_ERR_ABI if it cannot be
// read or differs from the card, FRT_ERR_FORMAT for members that are no text.  [any]
frt_plugin_desc read_descriptor(const frt_plugin_desc& given, const Card& card);

// ---- opening --------------------------------------------------------------------------------

// What plugins get from the host, beside the tables of core (frt.exec/1, frt.state/1).
class HostServices;
class SetupWatch;

// One opened plugin; closes it when destroyed, after everything made from it is gone. Where
// something that was made from it stays, keep_open() takes the plugin.
class OpenPlugin {
 public:
  // Calls `open`. Throws what the plugin reports or throws, with its id before the text. Here and
  // at the end it holds lock_plugin_setup().  [setup]
  OpenPlugin(const LoadedPlugin& loaded, const Config& options, HostServices& services);
  ~OpenPlugin();
  OpenPlugin(const OpenPlugin&) = delete;
  OpenPlugin& operator=(const OpenPlugin&) = delete;

  // Never closes `plugin`, for something that was made from it is left. What it says from now on is
  // dropped, so its host may go.  [setup]
  static void keep_open(std::unique_ptr<OpenPlugin> plugin) noexcept;

  const LoadedPlugin& loaded() const noexcept { return loaded_; }
  const Config& options() const noexcept { return options_; }  // that it was opened with
  frt_plugin handle() const noexcept { return plugin_; }
  // Watches `call` of this plugin until the result is destroyed (services.hpp).  [setup]
  SetupWatch watch(const char* call) const;
  // Runs `run`, a call of the plugin that ends something and cannot fail: what it throws goes to
  // the log.  [setup]
  void end(const char* call, const std::function<void()>& run) const noexcept;
  // "plugin acme.fast", for errors.
  std::string sender() const { return plugin_sender(loaded_.card.id); }
  // The plugin's table `id`, or null: a checked copy that lives as long as this object, zero where
  // the plugin's ends (frt/contracts.hpp). Throws FRT_ERR_ABI, naming the plugin, for a table that
  // cannot be read.  [setup]
  template <HasContract Table>
  const Table* find(const char* id) const {
    const void* given = contain(sender(), "extension", [&] { return extension(id); });
    if (!given) return nullptr;
    std::shared_ptr<const void>& known = tables_[{given, Contract<Table>::kName}];
    if (!known) known = std::make_shared<const Table>(read_table<Table>(given, sender()));
    return static_cast<const Table*>(known.get());
  }
  // The plugin's table `id`; FRT_ERR_UNSUPPORTED naming the plugin if it has none.
  template <HasContract Table>
  const Table& require(const char* id) const {
    const Table* table = find<Table>(id);
    if (!table) {
      throw Error(FRT_ERR_UNSUPPORTED, sender() + " offers no " + id + "; it cannot be used here");
    }
    return *table;
  }

 private:
  struct HostView;  // the frt_host of this plugin, with its id

  const void* extension(const char* id) const { return loaded_.descriptor->extension(plugin_, id); }

  const LoadedPlugin& loaded_;
  Config options_;
  mutable std::map<std::pair<const void*, std::string>, std::shared_ptr<const void>> tables_;
  std::unique_ptr<HostView> host_;
  frt_plugin plugin_ = nullptr;
};

// ---- the lock file --------------------------------------------------------------------------

// frt.lock: the digests that plugin files must have.
struct LockEntry {
  std::string id;
  std::string file;  // name without folder, for people
  std::string sha256;
  uint64_t bytes = 0;
};

struct LockFile {
  std::filesystem::path path;
  std::vector<LockEntry> entries;
  // The entry of `id`, or null.
  const LockEntry* find(std::string_view id) const noexcept;
};

// Reads a lock; strict. Throws FRT_ERR_NOT_FOUND, FRT_ERR_FORMAT with positions.  [setup]
LockFile read_lock(const std::filesystem::path& path);
// The entry of a plugin file as it is now.  [setup]
LockEntry lock_entry(const std::filesystem::path& plugin_file);
// Writes a lock, entries sorted by id, to a temporary name and renames it. FRT_ERR_IO.  [setup]
void write_lock(const std::filesystem::path& path, std::vector<LockEntry> entries);
// One line per plugin file that differs from the lock or is not in it; empty: all match.  [setup]
std::vector<std::string> verify_lock(const LockFile& lock,
                                     const std::vector<std::filesystem::path>& plugin_files);

}  // namespace frt::core
