// SPDX-License-Identifier: Apache-2.0
// frt-host capsule: what is in a folder of capsules. No command in this file needs a device or a
// model; `capsule check` does (capsule_check.cpp).
#include <fmt/format.h>
#include <frt/capsule.hpp>
#include <frt/core/capsules.hpp>
#include <frt/io/file.hpp>
#include <frt/io/json.hpp>
#include <frt/io/json_text.hpp>
#include <frt/io/utf8.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/app.hpp"
#include "cli/terminal/output.hpp"
#include "cli/terminal/progress_view.hpp"
#include "cli/terminal/table.hpp"
#include "cli/terminal/text.hpp"
#include "lm/capsules/content.hpp"
#include "lm/capsules/file.hpp"
#include "lm/capsules/index.hpp"
#include "lm/capsules/transfer.hpp"
#include "lm/capsules/trust.hpp"
#include "lm/sampling.hpp"
#include "runtime/lm_settings.hpp"

namespace frt::host {
namespace {

using Json = nlohmann::ordered_json;

struct CapsuleCommandOptions {
  std::string where;  // a manifest, or a folder
  std::string model;
  std::vector<std::string> names;
  std::string name, file;
  bool trust = false;
  bool json = false;
};

struct Folder {
  std::filesystem::path path;
  bool trust = false;  // capsules that others can write are used, too
};

// The folder that `where` is, or that it names in [host.lm].
Folder folder_of(App& app, const CapsuleCommandOptions& options) {
  std::error_code ignored;
  if (std::filesystem::is_directory(options.where, ignored)) {
    const char* unused = !options.model.empty()        ? "--model"
                         : !app.options().sets.empty() ? "--set"
                                                       : nullptr;
    if (unused) {
      throw ExitError(ExitCode::kUsage, FRT_ERR_INVALID_ARGUMENT,
                      fmt::format("{} is about a manifest, and {} is a folder; leave it out",
                                  unused, io::quote(options.where)));
    }
    return {options.where, options.trust};
  }
  const core::Manifest manifest = app.manifests().load(options.where);
  for (const core::HostSpec& host : manifest.hosts) {
    const bool matches = host.type == "lm" &&
                         (options.model.empty() || host.settings.text("model") == options.model);
    if (matches && !host.settings.text("capsule_dir").empty()) {
      return {host.settings.text("capsule_dir"),
              options.trust || host.settings.integer("capsule_trust") != 0};
    }
  }
  throw ExitError(ExitCode::kManifest, FRT_ERR_NOT_FOUND,
                  options.where +
                      " names no folder of capsules; set `capsule_dir` in its table "
                      "[host.lm], or give the folder itself");
}

std::string age(uint64_t when) {
  const uint64_t now = unix_seconds();
  const uint64_t seconds = now > when ? now - when : 0;
  if (seconds < 120) return fmt::format("{} s", seconds);
  if (seconds < 7200) return fmt::format("{} min", seconds / 60);
  if (seconds < 172800) return fmt::format("{} h", seconds / 3600);
  return fmt::format("{} d", seconds / 86400);
}

// What a check of lm/capsules/trust.hpp throws; what else is wrong with a file is no matter of
// trust.
template <class Check>
std::string refusal_of(const Check& check) {
  try {
    check();
  } catch (const Error& error) {
    if (error.status() == FRT_ERR_BAD_STATE) return error.what();
  }
  return {};
}

// Why a restore would refuse what is in a folder, for whose it could be.
class Distrust {
 public:
  explicit Distrust(const Folder& folder)
      : folder_(folder),
        all_(folder.trust ? "" : refusal_of([&] { require_own_folder(folder.path); })) {}

  const std::string& of_folder() const noexcept { return all_; }
  // Of one capsule; empty: it would not be refused.
  std::string of(const std::string& name) const {
    if (folder_.trust || !all_.empty()) return all_;
    const std::filesystem::path file = folder_.path / (name + kCapsuleSuffix);
    return refusal_of(
        [&] { require_own_file(io::open_file(file, "capsule", io::Links::kRefuse), file); });
  }

 private:
  const Folder& folder_;
  std::string all_;
};

Json to_json(const IndexRow& row, bool trusted) {
  Json json = {{"name", row.name}, {"bytes", row.file_bytes}, {"trusted", trusted}};
  if (!row.problem.empty()) {
    json["damaged"] = row.damaged;
    json["problem"] = row.problem;
    return json;
  }
  json.update({{"kind", row.kind},
               {"tokens", row.boundary},
               {"model", row.model},
               {"owner", row.owner},
               {"parent", row.parent},
               {"created", time_text(row.created)},
               {"last_used", time_text(row.last_used)},
               {"pinned", row.pinned},
               {"on_cold_path", row.cold_path},
               {"token_digest", to_text(row.digest)}});
  return json;
}

ExitCode list(App& app, const CapsuleCommandOptions& options) {
  const Folder folder = folder_of(app, options);
  CapsuleIndex index(*core::capsules_table(), folder.path, folder.trust);
  index.refresh_all();  // a file may be damaged and look as it did
  const std::vector<IndexRow> rows = index.rows();
  const Distrust distrust(folder);
  if (options.json) {
    Json all = Json::array();
    for (const IndexRow& row : rows) all.push_back(to_json(row, distrust.of(row.name).empty()));
    print_json(Json{{"folder", index.folder().string()},
                    {"untrusted", distrust.of_folder()},
                    {"capsules", all}});
    return ExitCode::kOk;
  }
  Table table({"NAME", "TOKENS", "SIZE", "KIND", "MODEL", "USED", "PIN"}, {1, 2});
  for (const IndexRow& row : rows) {
    const bool trusted = distrust.of(row.name).empty();
    if (!row.problem.empty()) {
      const char* kind = row.damaged ? "damaged" : trusted ? "unusable" : "untrusted";
      table.add(
          {row.name, "-", format_bytes(row.file_bytes), kind, "-", "-", row.pinned ? "pin" : ""});
      print_err("{}: {}\n", row.name, io::printable(row.problem));
      continue;
    }
    table.add({row.name, std::to_string(row.boundary), format_bytes(row.file_bytes),
               trusted ? row.kind : "untrusted", io::printable(row.model), age(row.last_used),
               row.pinned ? "pin" : ""});
  }
  write_out(table.render(TableFormat::kAligned));
  const IndexOpening& opening = index.opening();
  if (!opening.problem.empty()) print_err("note: {}\n", io::printable(opening.problem));
  if (!distrust.of_folder().empty()) {
    print_err("no capsule of this folder is used: {}\n", io::printable(distrust.of_folder()));
  }
  return ExitCode::kOk;
}

ExitCode show(App& app, const CapsuleCommandOptions& options) {
  const CapsuleDescription description =
      describe_capsule(*core::capsules_table(), folder_of(app, options).path, options.name);
  CapsuleContent content = content_from_text(description.metadata);
  take_manifest(content, description.manifest);
  const Json manifest = io::parse_json(description.manifest, "the capsule's manifest");
  Json facts = {{"name", options.name},
                {"kind", capsule_kind_name(content.kind)},
                {"model", content.model},
                {"owner", content.owner},
                {"parent", content.parent},
                {"created", time_text(content.created)},
                {"tokens", content.boundary()},
                {"token_digest", to_text(content.digest)},
                {"chunk", content.chunk},
                {"steps", path_to_json(content.path)},
                {"on_cold_path", on_cold_path(content.path, content.chunk)},
                {"pending_token", content.pending.token},
                {"pending_shown", content.pending.shown},
                {"sampling", sampling_to_json(content.sampling)},
                {"messages", content.extra.value("messages", Json::array()).size()}};
  if (options.json) {
    facts["ids"] = content.tokens;
    facts["extra"] = content.extra;
    facts["file"] = manifest;
    print_json(facts);
    return ExitCode::kOk;
  }
  for (const auto& [key, value] : facts.items()) {
    print_out("{:<14} {}\n", key,
              io::printable(value.is_string() ? value.get<std::string>() : io::json_text(value)));
  }
  print_out("fingerprint\n");
  const Json fingerprint = manifest.is_object() ? manifest.value("fingerprint", Json()) : Json();
  for (const auto& [key, value] : fingerprint.items()) {
    print_out("  {}\n",
              io::printable((fingerprint.is_array() ? "" : key + " ") + io::json_text(value)));
  }
  return ExitCode::kOk;
}

ExitCode verify(App& app, const CapsuleCommandOptions& options) {
  const frt_capsules_v1& capsules = *core::capsules_table();
  const Folder folder = folder_of(app, options);
  const Distrust distrust(folder);
  std::vector<std::string> names =
      options.names.empty() ? list_capsules(capsules, folder.path) : options.names;
  std::sort(names.begin(), names.end());
  Json all = Json::array();
  bool good = true;
  for (const std::string& name : names) {
    std::string problem;
    try {
      verify_capsule_file(capsules, folder.path, name);
    } catch (const Error& error) {
      problem = error.what();
    }
    // The digests of a file that somebody else could write prove nothing.
    const std::string untrusted = distrust.of(name);
    if (problem.empty()) problem = untrusted;
    good = good && problem.empty();
    if (options.json) {
      all.push_back({{"name", name},
                     {"ok", problem.empty()},
                     {"trusted", untrusted.empty()},
                     {"problem", problem}});
    } else {
      print_out("{}: {}\n", io::printable(name), problem.empty() ? "ok" : io::printable(problem));
    }
  }
  if (options.json) print_json(Json{{"ok", good}, {"capsules", all}});
  return good ? ExitCode::kOk : ExitCode::kFailed;
}

// Every one of the names, also after one with which it fails.
template <class Change>
ExitCode for_each_name(App& app, const CapsuleCommandOptions& options, const Change& change) {
  CapsuleIndex index(*core::capsules_table(), folder_of(app, options).path);
  ExitCode status = ExitCode::kOk;
  for (const std::string& name : options.names) {
    try {
      change(index, name);
    } catch (const Error& error) {
      print_err("error: {}\n", io::printable(error.what()));
      status = ExitCode::kFailed;
    }
  }
  return status;
}

ExitCode remove(App& app, const CapsuleCommandOptions& options) {
  return for_each_name(app, options,
                       [](CapsuleIndex& index, const std::string& name) { index.remove(name); });
}

ExitCode pin(App& app, const CapsuleCommandOptions& options, bool pinned) {
  return for_each_name(app, options, [pinned](CapsuleIndex& index, const std::string& name) {
    index.pin(name, pinned);
  });
}

}  // namespace

void add_capsule_command(App& app) {
  Command capsule = app.program().add_subcommand("capsule", "List, check and move saved states");
  capsule.require_subcommand();
  capsule.examples({"capsule ls my.toml", "capsule show my.toml long", "capsule verify my.toml"},
                   "`frt-host capsule COMMAND --help` explains each.");
  const auto add = [&](const char* name, const char* doc, const char* example) {
    auto options = std::make_shared<CapsuleCommandOptions>();
    Command command = capsule.add_subcommand(name, doc);
    command.examples({example});
    command
        .add_option("where", options->where,
                    "Use this folder of capsules, or the capsule_dir of this manifest")
        .required();
    command.add_option("--model", options->model, kModelDoc).type_name("NAME");
    return std::pair(command, options);
  };
  {
    auto [command, options] = add("ls", "List the capsules", "capsule ls my.toml");
    command.add_flag("--trust", options->trust, "Use files that other users could have written");
    command.add_flag("--json", options->json, "Print JSON");
    app.add_command(command, [&app, options = options] { return list(app, *options); });
  }
  {
    auto [command, options] = add("show", "Show what a capsule holds and which models it fits",
                                  "capsule show my.toml long");
    command.add_option("name", options->name, "Show this capsule").required();
    command.add_flag("--json", options->json, "Print JSON with all token ids");
    app.add_command(command, [&app, options = options] { return show(app, *options); });
  }
  {
    auto [command, options] = add("verify", "Check every byte of these capsules; default: of all",
                                  "capsule verify my.toml");
    command.add_option("names", options->names, "Check these capsules");
    command.add_flag("--trust", options->trust, "Use files that other users could have written");
    command.add_flag("--json", options->json, "Print JSON");
    app.add_command(command, [&app, options = options] { return verify(app, *options); });
  }
  {
    auto [command, options] = add("rm", "Remove capsules", "capsule rm my.toml long");
    command.add_option("names", options->names, "Remove these capsules").required();
    app.add_command(command, [&app, options = options] { return remove(app, *options); });
  }
  {
    auto [command, options] =
        add("pin", "Keep this capsule; never evict it", "capsule pin my.toml long");
    command.add_option("names", options->names, "Pin these capsules").required();
    app.add_command(command, [&app, options = options] { return pin(app, *options, true); });
  }
  {
    auto [command, options] = add("unpin", "Allow eviction again", "capsule unpin my.toml long");
    command.add_option("names", options->names, "Unpin these capsules").required();
    app.add_command(command, [&app, options = options] { return pin(app, *options, false); });
  }
  {
    auto [command, options] = add("export", "Copy a capsule to a file elsewhere",
                                  "capsule export my.toml long long.frtcap");
    command.add_option("name", options->name, "Copy this capsule").required();
    command.add_option("file", options->file, "Write this new file").required();
    command.add_flag("--trust", options->trust, "Use files that other users could have written");
    app.add_command(command, [&app, options = options] {
      const Folder folder = folder_of(app, *options);
      export_capsule(*core::capsules_table(), folder.path, options->name, options->file,
                     folder.trust);
      return ExitCode::kOk;
    });
  }
  {
    auto [command, options] =
        add("import", "Check an exported file and add it", "capsule import my.toml long.frtcap");
    command.add_option("file", options->file, "Read this file of `capsule export`").required();
    command.add_option("name", options->name, "Give the capsule this name; default: the file's");
    command.add_flag("--trust", options->trust, "Use files that other users could have written");
    app.add_command(command, [&app, options = options] {
      const Folder folder = folder_of(app, *options);
      const std::string name = import_capsule(*core::capsules_table(), folder.path, options->file,
                                              options->name, folder.trust);
      print_out("{}\n", name);
      return ExitCode::kOk;
    });
  }
  add_capsule_check(app, capsule);
}

}  // namespace frt::host
