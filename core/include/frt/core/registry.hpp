// SPDX-License-Identifier: Apache-2.0
// registry.hpp - all plugins that this host can see: where it looked, what it found, what it took
// and what it refused, each with its reason.
//
// Search order: files that the manifest names; folders of --plugin-dir; FRT_PLUGIN_PATH (ignored
// when the process runs with raised privileges); <executable>/../lib/frt/plugins, where the
// project's own plugins are. Never the working directory. Of two files with one id the first wins
// and the other is listed as shadowed, also when the first is refused or, named by the manifest,
// does not exist.
//
// A file is tried in a child process before it is loaded, wherever it lies, unless a lock vouches
// for its digest: the constructors of an untried file may abort. A good verdict is kept between
// runs (RegistryOptions::trials) while the files that it is about are as they were.
#pragma once

#include <frt/core/manifest.hpp>
#include <frt/core/plugin.hpp>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace frt::core {

class Log;

// Which files are tried before they are loaded.
enum class Probing {
  kUnlocked,  // those that no lock vouches for and that have no verdict yet
  kAlways,    // all, whatever was found before
  kNever
};

// Where a user's programs keep good verdicts of trials; empty: nowhere.  [any]
std::filesystem::path user_trials();

struct RegistryOptions {
  std::vector<std::filesystem::path> plugin_folders;  // in order
  std::string folders_name = "--plugin-dir";          // what the user calls them, for messages
  bool use_environment = true;                        // FRT_PLUGIN_PATH
  std::optional<std::filesystem::path> own_folder;    // default: <executable>/../lib/frt/plugins
  std::optional<std::filesystem::path> lock;          // every plugin must be in it
  Probing probing = Probing::kUnlocked;
  std::filesystem::path trials = user_trials();  // folder of verdicts; empty: none are kept
  std::chrono::milliseconds trial_limit{std::chrono::seconds(10)};  // of one trial
  Environment environment = process_environment;
  // Names a plugin whose dlopen has not returned for `patience`; outlives the registry. Null:
  // nobody is told.
  Log* log = nullptr;
  std::chrono::milliseconds patience{std::chrono::seconds(30)};
};

enum class CandidateState { kUsable, kShadowed, kRefused };

// One file that was looked at.
struct Candidate {
  std::filesystem::path path;
  std::string origin;    // "manifest", "--plugin-dir", "FRT_PLUGIN_PATH", "own folder"
  bool trusted = false;  // it lies in the own folder
  CandidateState state = CandidateState::kRefused;
  frt_status code = FRT_OK;  // of a refusal
  std::string reason;        // of a refusal or shadowing
  std::optional<Card> card;
  std::string expected_id;  // the manifest's id for this file
  const LoadedPlugin* loaded = nullptr;
};

// The backend chosen for a device.
struct BackendChoice {
  std::string id;
  std::string architecture;
  std::string reason;               // e.g. "machine code for sm_90"
  std::vector<std::string> others;  // one line per candidate that was not chosen, with its reason
};

class Registry final : public SchemaSource {
 public:
  explicit Registry(RegistryOptions options = {});

  // ---- discovery ----
  void pin(const PluginEntry& entry) override;  // FRT_ERR_BAD_STATE after the first look
  const std::vector<Candidate>& candidates();
  // Folders in search order, with what was ignored and why: for people.
  std::vector<std::string> describe_search() const;
  const Candidate* find_usable(const std::string& id);

  // ---- loading ----
  // Throws FRT_ERR_NOT_FOUND with the places that were searched and close ids, or why the file was
  // refused; the refusal is kept in candidates(). The first load of a file may try it in a child
  // process (Probing), beside which no other thread may be running; later ones do nothing.
  const LoadedPlugin& load(const std::string& id);
  // Tries every usable file that is not loaded in a child process, as load() would before it loads
  // one; what was tried before is not tried again. Which are refused is in candidates().  [setup]
  void try_all();
  // Loads every usable plugin of a kind. Why one does not load is in candidates().
  void load_all(uint32_t kind);

  // ---- for the manifest ----
  Lookup find(const std::string& id) override;
  Lookup check_pin(const PluginEntry& entry) override;
  std::vector<std::string> ids(uint32_t kind) override;
  // Schemas of all plugins that load.
  std::vector<PluginSchema> schemas();

 private:
  void scan();
  void consider(const std::filesystem::path& path, const std::string& origin, bool trusted,
                const std::string& expected_id);
  const Candidate* find_first(const std::string& id) const;
  const LoadedPlugin& load_candidate(Candidate& candidate);
  // Refuses it from now on; for the caller to throw.
  static Error reject(Candidate& candidate, frt_status code, const std::string& reason);
  void try_candidate(Candidate& candidate) const;  // throws reject()
  ProbeResult try_file(const std::filesystem::path& path) const;

  RegistryOptions options_;
  std::optional<LockFile> lock_;
  std::vector<PluginEntry> pinned_;
  std::vector<Candidate> candidates_;
  std::vector<std::string> ignored_;
  bool scanned_ = false;
};

}  // namespace frt::core
