// SPDX-License-Identifier: Apache-2.0
// The search, and what becomes of each file.
//
// Cards are read for every file of every folder: some table reads each. Code of a plugin runs only
// when somebody asks for that plugin. A refusal, early or late, stays in the list with its reason,
// and the next file of the same id does not silently take its place. Nor does a file of the search
// path take the place of one that the manifest names.
#include <frt/core/registry.hpp>
#include <frt/core/services.hpp>
#include <frt/io/file.hpp>
#include <frt/io/user_cache.hpp>

#include "plugin/elf.hpp"
#include "plugin/trial_record.hpp"
#include "util/toml_reader.hpp"

#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace frt::core {

namespace {

namespace fs = std::filesystem;

bool privileged() {
  return ::getauxval(AT_SECURE) != 0 || ::geteuid() != ::getuid();
}

fs::path default_own_folder() {
  std::error_code code;
  const fs::path program = fs::read_symlink("/proc/self/exe", code);
  if (code) return {};
  return (program.parent_path() / ".." / "lib" / "frt" / "plugins").lexically_normal();
}

// Findings of a card as one line, for tables.
std::string one_line(const Error& error) {
  const auto* findings = dynamic_cast<const DiagnosticError*>(&error);
  if (!findings) return error.what();
  std::string text = "its card is broken: ";
  if (error.status() == FRT_ERR_ABI) text.clear();
  bool first = true;
  for (const Diagnostic& d : findings->diagnostics()) {
    text += (first ? "" : "; ") + d.message + (d.hint.empty() ? "" : " (" + d.hint + ")");
    first = false;
  }
  return text;
}

std::vector<fs::path> plugin_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    if (at->path().extension() == ".so") files.push_back(at->path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// "; it requires: ..." of a card that says so: the likely reason when a file does not load.
std::string requirements(const Card& card) {
  std::string text;
  for (const std::string& one : card.requirements) text += (text.empty() ? "" : ", ") + one;
  return text.empty() ? text : "; it requires: " + text;
}

std::string refusal(const std::string& id, const Candidate& candidate) {
  return "plugin '" + id + "' (" + candidate.path.string() + ") was refused: " + candidate.reason;
}

// The id that the card of a refused file gives, or an empty string: whoever asks for that id is to
// hear why the file was refused.
std::string claimed_id(const fs::path& path) {
  try {
    const io::Descriptor file = io::open_file(path, "plugin");
    const ElfFacts facts = read_elf(file.get(), path.string());
    const SourceText source(path.string(), facts.card);
    Diagnostics diagnostics(&source);
    const TomlNode root = parse_toml(facts.card, source, diagnostics);
    const TomlMember* id = diagnostics.has_errors() ? nullptr : root.find("id");
    return id && id->value.kind == TomlNode::Kind::kString ? id->value.text : std::string();
  } catch (const std::exception&) {
    return {};
  }
}

bool same_file(const fs::path& a, const fs::path& b) {
  std::error_code code;
  return a == b || fs::equivalent(a, b, code);
}

}  // namespace

fs::path user_trials() {
  return io::user_cache_folder("trials");
}

Registry::Registry(RegistryOptions options) : options_(std::move(options)) {
  if (!options_.own_folder) options_.own_folder = default_own_folder();
  if (options_.lock) lock_ = read_lock(*options_.lock);
}

void Registry::pin(const PluginEntry& entry) {
  if (scanned_) {
    throw Error(FRT_ERR_BAD_STATE,
                "plugin '" + entry.id + "' is named after the search; load the manifest first");
  }
  pinned_.push_back(entry);
}

const std::vector<Candidate>& Registry::candidates() {
  scan();
  return candidates_;
}

void Registry::scan() {
  if (scanned_) return;
  scanned_ = true;
  for (const PluginEntry& entry : pinned_) {
    if (!entry.path.empty()) consider(entry.path, "manifest", false, entry.id);
  }
  const auto folder = [&](const fs::path& path, const char* origin, bool trusted) {
    for (const fs::path& file : plugin_files(path)) consider(file, origin, trusted, {});
  };
  for (const fs::path& path : options_.plugin_folders) {
    folder(fs::absolute(path).lexically_normal(), options_.folders_name.c_str(), false);
  }
  const auto variable = options_.use_environment && options_.environment
                            ? options_.environment("FRT_PLUGIN_PATH")
                            : std::nullopt;
  if (variable && privileged()) {
    ignored_.push_back("FRT_PLUGIN_PATH: ignored, this process has raised privileges");
  } else if (variable) {
    std::string_view rest = *variable;
    for (;;) {
      const std::size_t end = rest.find(':');
      const fs::path path(rest.substr(0, end));
      if (path.is_absolute()) {
        folder(path, "FRT_PLUGIN_PATH", false);
      } else if (!path.empty()) {
        ignored_.push_back("FRT_PLUGIN_PATH: '" + path.string() +
                           "' ignored, only absolute folders are searched");
      }
      if (end == std::string_view::npos) break;
      rest.remove_prefix(end + 1);
    }
  }
  if (!options_.own_folder->empty()) folder(*options_.own_folder, "own folder", true);
}

void Registry::consider(const fs::path& path, const std::string& origin, bool trusted,
                        const std::string& expected_id) {
  // A file that the manifest names under two ids is refused under one of them.
  for (const Candidate& other : candidates_) {
    if (expected_id.empty() && same_file(other.path, path)) return;
  }
  Candidate candidate;
  candidate.path = path;
  candidate.origin = origin;
  candidate.expected_id = expected_id;
  candidate.trusted = trusted || (!options_.own_folder->empty() &&
                                  same_file(path.parent_path(), *options_.own_folder));
  const auto refuse = [&](frt_status code, const std::string& reason) {
    candidate.state = CandidateState::kRefused;
    candidate.code = code;
    candidate.reason = reason;
  };
  try {
    const PluginImage image = read_image(path);
    candidate.card = image.card;
    candidate.state = CandidateState::kUsable;
    if (const std::string problem = sanitizer_refusal(image.sanitizer); !problem.empty()) {
      refuse(FRT_ERR_ABI, problem);
    } else if (!expected_id.empty() && expected_id != image.card.id) {
      refuse(FRT_ERR_MISMATCH,
             "the manifest calls it '" + expected_id + "', its card says '" + image.card.id + "'");
    } else if (const Candidate* first = find_first(image.card.id)) {
      candidate.state = CandidateState::kShadowed;
      candidate.reason = "'" + first->path.string() + "' (" + first->origin + ") comes first";
    }
  } catch (const Error& error) {
    // Helper libraries live beside plugins; only somebody who named the file wants to hear of it.
    if (error.status() == FRT_ERR_UNSUPPORTED && expected_id.empty()) return;
    refuse(error.status(), one_line(error));
  } catch (const std::exception& error) {
    // One file that is too much for this machine hides no other.
    refuse(FRT_ERR_INTERNAL, std::string("it cannot be examined: ") + error.what());
  }
  candidates_.push_back(std::move(candidate));
}

std::vector<std::string> Registry::describe_search() const {
  std::vector<std::string> lines;
  for (const PluginEntry& entry : pinned_) {
    if (!entry.path.empty()) lines.push_back("manifest: " + entry.path.string());
  }
  for (const fs::path& path : options_.plugin_folders) {
    std::error_code code;
    lines.push_back(options_.folders_name + ": " + fs::absolute(path).lexically_normal().string() +
                    (fs::is_directory(path, code) ? "" : " (no such folder)"));
  }
  const auto variable = options_.use_environment && options_.environment
                            ? options_.environment("FRT_PLUGIN_PATH")
                            : std::nullopt;
  if (variable && ignored_.empty()) lines.push_back("FRT_PLUGIN_PATH: " + *variable);
  lines.insert(lines.end(), ignored_.begin(), ignored_.end());
  lines.push_back("own folder: " + options_.own_folder->string());
  return lines;
}

const Candidate* Registry::find_usable(const std::string& id) {
  scan();
  for (const Candidate& candidate : candidates_) {
    if (candidate.state == CandidateState::kUsable && candidate.card->id == id) return &candidate;
  }
  return nullptr;
}

// The file that has the id for itself, usable or refused: by the manifest's word, else by its card.
const Candidate* Registry::find_first(const std::string& id) const {
  for (const Candidate& candidate : candidates_) {
    const bool named = !candidate.expected_id.empty();
    if (named ? candidate.expected_id == id : candidate.card && candidate.card->id == id) {
      return &candidate;
    }
  }
  return nullptr;
}

SchemaSource::Lookup Registry::check_pin(const PluginEntry& entry) {
  scan();
  Lookup lookup;
  for (const Candidate& candidate : candidates_) {
    if (candidate.expected_id != entry.id || candidate.path != entry.path) continue;
    if (candidate.card) lookup.kind = candidate.card->kind;
    if (candidate.state == CandidateState::kRefused) {
      lookup.code = candidate.code;
      lookup.problem = refusal(entry.id, candidate);
      lookup.notes = {"the manifest gives its path, so the search path is not used"};
    }
    return lookup;
  }
  lookup.code = FRT_ERR_BAD_STATE;
  lookup.problem = "plugin '" + entry.id + "' is pinned to '" + entry.path.string() +
                   "', but not in this registry; load the manifest with it";
  return lookup;
}

const LoadedPlugin& Registry::load(const std::string& id) {
  const auto alone = lock_plugin_setup();
  scan();
  for (Candidate& candidate : candidates_) {
    if (candidate.state == CandidateState::kUsable && candidate.card->id == id) {
      return load_candidate(candidate);
    }
  }
  for (const Candidate& candidate : candidates_) {
    const bool meant = candidate.card ? candidate.card->id == id : candidate.expected_id == id;
    if (candidate.state == CandidateState::kRefused && (meant || candidate.expected_id == id)) {
      throw Error(candidate.code, refusal(id, candidate));
    }
  }
  for (const Candidate& candidate : candidates_) {
    if (candidate.state != CandidateState::kRefused || candidate.card) continue;
    if (claimed_id(candidate.path) == id) throw Error(candidate.code, refusal(id, candidate));
  }
  std::string text = "no plugin '" + id + "'";
  std::vector<std::string> known;
  for (const Candidate& candidate : candidates_) {
    if (candidate.state == CandidateState::kUsable) known.push_back(candidate.card->id);
  }
  const std::string hint = did_you_mean(id, known);
  if (!hint.empty()) {
    text += " (" + hint + ")";
  } else {
    for (std::size_t i = 0; i < known.size(); ++i) text += (i ? ", " : "; there are ") + known[i];
    text += "; build or install it, or give its folder with " + options_.folders_name;
  }
  text += "; searched:";
  for (const std::string& line : describe_search()) text += "\n  " + line;
  // A file whose card cannot be read may be the plugin, and so may a library without a card.
  for (const Candidate& candidate : candidates_) {
    if (candidate.state != CandidateState::kRefused || candidate.card) continue;
    text += "\n  " + candidate.path.string() + ": refused: " + candidate.reason;
  }
  // A library without a card may have been built without FRT_PLUGIN.
  for (const fs::path& folder : options_.plugin_folders) {
    for (const fs::path& file : plugin_files(fs::absolute(folder).lexically_normal())) {
      const bool listed = std::ranges::any_of(
          candidates_, [&](const Candidate& candidate) { return same_file(candidate.path, file); });
      if (!listed)
        text += "\n  " + file.string() + ": no plugin, it has no section " FRT_CARD_SECTION;
    }
  }
  throw Error(FRT_ERR_NOT_FOUND, text);
}

Error Registry::reject(Candidate& candidate, frt_status code, const std::string& reason) {
  candidate.state = CandidateState::kRefused;
  candidate.code = code;
  candidate.reason = reason;
  return Error(code, refusal(candidate.card->id, candidate));
}

void Registry::try_candidate(Candidate& candidate) const {
  const ProbeResult trial = try_file(candidate.path);
  if (trial.verdict == ProbeVerdict::kOk) return;
  throw reject(candidate,
               trial.verdict == ProbeVerdict::kRefused ? FRT_ERR_FORMAT : FRT_ERR_INTERNAL,
               trial.detail + requirements(*candidate.card));
}

void Registry::try_all() {
  if (options_.probing == Probing::kNever) return;
  scan();
  for (Candidate& candidate : candidates_) {
    if (candidate.state != CandidateState::kUsable || candidate.loaded) continue;
    try {
      try_candidate(candidate);
    } catch (const Error&) {
      continue;  // the candidate has the reason
    }
  }
}

const LoadedPlugin& Registry::load_candidate(Candidate& candidate) {
  if (candidate.loaded) return *candidate.loaded;
  LoadRequest request;
  request.path = candidate.path;
  if (lock_) {
    const LockEntry* entry = lock_->find(candidate.card->id);
    if (!entry) {
      throw reject(candidate, FRT_ERR_MISMATCH,
                   "it is not in the lock '" + lock_->path.string() +
                       "'; write the lock again if it is wanted");
    }
    request.digest = entry->sha256;
  }
  const bool locked = !request.digest.empty();
  if (options_.probing == Probing::kAlways || (options_.probing == Probing::kUnlocked && !locked)) {
    try_candidate(candidate);
  }
  try {
    std::optional<SetupWatch> watching;
    if (options_.log) {
      watching.emplace(*options_.log, options_.patience, candidate.card->id, "dlopen");
      request.entering = [&](const char* call) { watching->enter(call); };
    }
    const LoadedPlugin& loaded = load_plugin(request);
    // The file may have been replaced since its card was read for the list.
    if (!(loaded.card == *candidate.card)) {
      throw Error(FRT_ERR_MISMATCH, "the file changed after the search; start again");
    }
    candidate.loaded = &loaded;
    return loaded;
  } catch (const Error& error) {
    throw reject(candidate, error.status(), one_line(error) + requirements(*candidate.card));
  }
}

ProbeResult Registry::try_file(const fs::path& path) const {
  const TrialRecord record(options_.trials);
  if (options_.probing != Probing::kAlways && record.knows(path)) {
    return {ProbeVerdict::kOk, "loaded before", {}};
  }
  const auto begin = std::chrono::system_clock::now();
  ProbeResult trial = probe_in_child(path, options_.trial_limit);
  if (trial.verdict == ProbeVerdict::kOk && !trial.mapped.empty()) {
    record.add(path, trial.mapped, begin);
  }
  return trial;
}

void Registry::load_all(uint32_t kind) {
  for (const std::string& id : ids(kind)) {
    try {
      load(id);
    } catch (const Error&) {
      continue;  // the candidate has the reason
    }
  }
}

SchemaSource::Lookup Registry::find(const std::string& id) {
  Lookup lookup;
  if (const Candidate* candidate = find_usable(id)) lookup.kind = candidate->card->kind;
  try {
    const LoadedPlugin& loaded = load(id);
    lookup.schema = &loaded.schema;
  } catch (const Error& error) {
    lookup.code = error.status();
    const std::string text = error.what();
    const std::size_t end = text.find('\n');
    lookup.problem = text.substr(0, end);
    for (std::size_t at = end; at != std::string::npos;) {
      const std::size_t next = text.find('\n', at + 1);
      std::string note = text.substr(at + 1, next == std::string::npos ? next : next - at - 1);
      note.erase(0, note.find_first_not_of(' '));
      lookup.notes.push_back(std::move(note));
      at = next;
    }
    if (error.status() == FRT_ERR_NOT_FOUND && lookup.problem.ends_with("; searched:")) {
      lookup.problem.resize(lookup.problem.size() - std::string_view("; searched:").size());
      for (std::string& note : lookup.notes) note.insert(0, "searched ");
    }
  }
  return lookup;
}

std::vector<std::string> Registry::ids(uint32_t kind) {
  std::vector<std::string> found;
  for (const Candidate& candidate : candidates()) {
    if (candidate.state == CandidateState::kUsable && candidate.card->kind == kind) {
      found.push_back(candidate.card->id);
    }
  }
  return found;
}

std::vector<PluginSchema> Registry::schemas() {
  std::vector<PluginSchema> all;
  for (const uint32_t kind : {FRT_PLUGIN_BACKEND, FRT_PLUGIN_MODEL, FRT_PLUGIN_ENVIRONMENT}) {
    for (const std::string& id : ids(kind)) {
      const Lookup lookup = find(id);
      if (lookup.schema) all.push_back({id, kind, *lookup.schema});
    }
  }
  return all;
}

}  // namespace frt::core
