// SPDX-License-Identifier: Apache-2.0
// The search for plugins, duplicates, refusals that stay, lock files, and the automatic choice.
#include <frt/core/registry.hpp>
#include <frt/core/runtime.hpp>

#include "helpers.hpp"

using namespace frt::core;
using test::error_of;
using test::has;

namespace {

namespace fs = std::filesystem;

RegistryOptions only(std::vector<fs::path> folders) {
  RegistryOptions options;
  options.plugin_folders = std::move(folders);
  options.use_environment = false;
  options.own_folder = "/nowhere";
  options.probing = Probing::kNever;
  return options;
}

const Candidate* by_path(const std::vector<Candidate>& candidates, const fs::path& path) {
  for (const Candidate& candidate : candidates) {
    if (candidate.path == path) return &candidate;
  }
  return nullptr;
}

// Opens plugins for choose_backend and keeps them.
struct Opener {
  explicit Opener(Registry& from) : registry(from) {}
  Log log{[] {
    LogOptions options;
    options.descriptor = -1;
    return options;
  }()};
  HostServices services{log};
  Registry& registry;
  std::vector<std::unique_ptr<OpenPlugin>> open;

  OpenPlugin& operator()(const std::string& id) {
    for (const auto& plugin : open) {
      if (plugin->loaded().card.id == id) return *plugin;
    }
    return *open.emplace_back(std::make_unique<OpenPlugin>(registry.load(id), Config(), services));
  }
};

}  // namespace

TEST_CASE("folders are searched in order; the first of one id wins, the other is shadowed") {
  const test::Folder a, b;
  fs::copy_file(test::kGoodModel, a.path() / "m.so");
  fs::copy_file(test::kGoodModel, b.path() / "m.so");
  RegistryOptions options = only({a.path()});
  options.use_environment = true;
  options.environment = [&](const std::string& name) -> std::optional<std::string> {
    if (name != "FRT_PLUGIN_PATH") return std::nullopt;
    return "relative/folder::" + b.path().string();
  };
  options.own_folder = test::kPlugins / "devices";
  Registry registry(options);
  const auto& candidates = registry.candidates();
  REQUIRE(candidates.size() == 6);
  CHECK(candidates[0].path == a.path() / "m.so");
  CHECK(candidates[0].origin == "--plugin-dir");
  CHECK(candidates[0].state == CandidateState::kUsable);
  CHECK_FALSE(candidates[0].trusted);
  CHECK(candidates[1].origin == "FRT_PLUGIN_PATH");
  CHECK(candidates[1].state == CandidateState::kShadowed);
  CHECK(has(candidates[1].reason, "comes first"));
  CHECK(candidates[2].origin == "own folder");
  CHECK(candidates[2].trusted);
  std::string search;
  for (const std::string& line : registry.describe_search()) search += line + "\n";
  CHECK(has(search, "'relative/folder' ignored, only absolute folders are searched"));
  CHECK(registry.ids(FRT_PLUGIN_MODEL) == std::vector<std::string>{"test.model"});
  CHECK(registry.ids(FRT_PLUGIN_BACKEND).size() == 4);
}

TEST_CASE("the working directory is never searched") {
  const test::Folder folder;
  fs::copy_file(test::kGoodModel, folder.path() / "m.so");
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  RegistryOptions options = only({});
  options.use_environment = true;
  options.environment = [](const std::string&) -> std::optional<std::string> { return ".::./"; };
  const std::size_t found = Registry(options).candidates().size();
  fs::current_path(before);
  CHECK(found == 0);
}

TEST_CASE("a manifest's file comes first, must have the id it is given, and may be missing") {
  const test::Folder folder;
  fs::copy_file(test::kGoodModel, folder.path() / "mine.so");
  Registry registry(only({test::kGoodModel.parent_path()}));
  registry.pin({"test.model", folder.path() / "mine.so", false, {}});
  registry.pin({"other.id", test::kPlugins / "devices" / "device_empty.so", false, {}});
  registry.pin({"gone", folder.path() / "gone.so", false, {}});
  CHECK(registry.find_usable("test.model")->path == folder.path() / "mine.so");
  CHECK(by_path(registry.candidates(), test::kGoodModel)->state == CandidateState::kShadowed);
  const Candidate* other =
      by_path(registry.candidates(), test::kPlugins / "devices" / "device_empty.so");
  CHECK(has(other->reason, "the manifest calls it 'other.id', its card says 'test.empty'"));
  const frt::Error error = error_of([&] { registry.load("gone"); });
  CHECK(error.status() == FRT_ERR_NOT_FOUND);
  CHECK(has(error.what(), "gone.so"));
  CHECK(error_of([&] { registry.pin({"late", {}, false, {}}); }).status() == FRT_ERR_BAD_STATE);
}

TEST_CASE("a file of the search path never takes the place of one that the manifest names") {
  const test::Folder folder;
  folder.write("text.so", "no library");
  const fs::path empty = test::kPlugins / "devices" / "device_empty.so";
  const std::vector<fs::path> unusable = {folder.path() / "gone.so", folder.path() / "text.so",
                                          empty};
  for (const fs::path& path : unusable) {
    INFO(path);
    Registry registry(only({test::kGoodModel.parent_path()}));
    const PluginEntry entry = {"test.model", path, false, {}};
    registry.pin(entry);
    CHECK(registry.find_usable("test.model") == nullptr);
    CHECK(by_path(registry.candidates(), test::kGoodModel)->state == CandidateState::kShadowed);
    CHECK(has(error_of([&] { registry.load("test.model"); }).what(), path.string()));
    const SchemaSource::Lookup file = registry.check_pin(entry);
    CHECK(file.code != FRT_OK);
    CHECK(has(file.problem, path.string()));
    CHECK(registry.ids(FRT_PLUGIN_MODEL).empty());
  }
  Registry registry(only({test::kGoodModel.parent_path()}));
  registry.pin({"test.model", test::kGoodModel, true, {}});
  CHECK(registry.check_pin({"test.model", test::kGoodModel, true, {}}).code == FRT_OK);
  CHECK(registry.check_pin({"test.model", "/elsewhere.so", true, {}}).code == FRT_ERR_BAD_STATE);
  CHECK(registry.load("test.model").path == test::kGoodModel);
}

TEST_CASE("a file that the manifest names under two ids is refused under the wrong one alone") {
  Registry registry(only({}));
  registry.pin({"other.id", test::kGoodModel, false, {}});
  registry.pin({"test.model", test::kGoodModel, false, {}});
  CHECK(registry.check_pin({"other.id", test::kGoodModel, false, {}}).code == FRT_ERR_MISMATCH);
  CHECK(registry.check_pin({"test.model", test::kGoodModel, false, {}}).code == FRT_OK);
  CHECK(has(error_of([&] { registry.load("other.id"); }).what(), "its card says 'test.model'"));
  CHECK(registry.load("test.model").path == test::kGoodModel);
}

TEST_CASE("a missing plugin is reported with suggestions and the places that were searched") {
  Registry registry(only({test::kGoodModel.parent_path(), "/nowhere/else"}));
  const frt::Error error = error_of([&] { registry.load("test.modle"); });
  CHECK(error.status() == FRT_ERR_NOT_FOUND);
  CHECK(has(error.what(), "no plugin 'test.modle' (did you mean `test.model`?)"));
  CHECK(has(error.what(), test::kGoodModel.parent_path().string()));
  const SchemaSource::Lookup lookup = registry.find("test.modle");
  CHECK(lookup.schema == nullptr);
  CHECK(lookup.problem == "no plugin 'test.modle' (did you mean `test.model`?)");
  REQUIRE(lookup.notes.size() == 3);
  CHECK(has(lookup.notes[0], "searched --plugin-dir: "));
  CHECK(has(lookup.notes[1], "/nowhere/else (no such folder)"));
}

TEST_CASE(
    "helper libraries and text files beside plugins are passed over, broken ones are listed") {
  const test::Folder folder;
  fs::copy_file(test::kGoodModel, folder.path() / "m.so");
  folder.write("notes.txt", "x");
  folder.write("broken.so", "no library");
  fs::copy_file(test::broken("card_key"), folder.path() / "card.so");
  std::string helper = test::read(test::kGoodModel);
  helper[helper.find(".frt.card") + 1] = 'x';
  folder.write("libhelper.so", helper);
  Registry registry(only({folder.path()}));
  REQUIRE(registry.candidates().size() == 3);
  CHECK(has(by_path(registry.candidates(), folder.path() / "broken.so")->reason, "ELF mark"));
  const Candidate* card = by_path(registry.candidates(), folder.path() / "card.so");
  CHECK(card->state == CandidateState::kRefused);
  CHECK(has(card->reason, "its card is broken: unknown key `targts` (did you mean `targets`?)"));
}

TEST_CASE("whoever asks for a plugin whose card is of another ABI or missing hears of the file") {
  const test::Folder folder;
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string bytes = test::read(test::kGoodModel);
    for (std::size_t at = bytes.find(from); at != std::string::npos; at = bytes.find(from, at)) {
      bytes.replace(at, from.size(), to);
    }
    folder.write("model.so", bytes);
    RegistryOptions options;
    options.plugin_folders = {folder.path()};
    options.use_environment = false;
    options.own_folder = "/nowhere";
    options.probing = Probing::kNever;
    Registry registry(options);
    return error_of([&] { registry.load("test.model"); });
  };
  frt::Error error = with("abi = \"0.9\"", "abi = \"2.0\"");
  CHECK(error.status() == FRT_ERR_ABI);
  CHECK(has(error.what(), "plugin 'test.model'"));
  CHECK(has(error.what(), "built for ABI 2.0, but this host speaks 0.9"));
  error = with("abi = ", "abl = ");
  CHECK(error.status() == FRT_ERR_FORMAT);
  CHECK(has(error.what(), "missing key `abi`"));
  // A card from which not even the id can be read: the file is named with what is wrong.
  for (const char* broken : {"id = test.model", "id = \"Test model\""}) {
    std::string text = broken;
    text.resize(std::string("id = \"test.model\"").size(), ' ');
    error = with("id = \"test.model\"", text);
    CHECK(error.status() == FRT_ERR_NOT_FOUND);
    CHECK(has(error.what(), "no plugin 'test.model'"));
    CHECK(has(error.what(), "model.so: refused: its card is broken"));
  }
  error = with(".frt.card", ".frt.cord");
  CHECK(error.status() == FRT_ERR_NOT_FOUND);
  CHECK(has(error.what(), "model.so: no plugin, it has no section .frt.card"));
}

TEST_CASE("a foreign plugin that aborts is refused by its trial and stays refused") {
  const test::Folder folder;
  fs::copy_file(test::broken("aborts"), folder.path() / "a.so");
  RegistryOptions options = only({folder.path()});
  options.probing = Probing::kUnlocked;
  Registry registry(options);
  CHECK(registry.candidates().at(0).state == CandidateState::kUsable);
  const frt::Error error = error_of([&] { registry.load("test.broken"); });
  CHECK(has(error.what(), "was refused: loading it ended the process"));
  CHECK(has(error.what(), "no driver found"));
  CHECK(has(error.what(), "; it requires: driver>=5, luck"));
  CHECK(registry.candidates().at(0).state == CandidateState::kRefused);
  CHECK(has(error_of([&] { registry.load("test.broken"); }).what(), "was refused: loading it"));
}

TEST_CASE("all files can be tried for a list that tells what would run") {
  const test::Folder folder;
  fs::copy_file(test::broken("aborts"), folder.path() / "a.so");
  fs::copy_file(test::kGoodModel, folder.path() / "m.so");
  RegistryOptions options = only({folder.path()});
  options.probing = Probing::kUnlocked;
  Registry registry(options);
  registry.try_all();
  CHECK(registry.candidates().at(0).state == CandidateState::kRefused);
  CHECK(has(registry.candidates().at(0).reason, "loading it ended the process"));
  CHECK(registry.candidates().at(1).state == CandidateState::kUsable);
  CHECK_FALSE(registry.candidates().at(1).loaded);
}

TEST_CASE("a foreign plugin is tried once: a program with threads must not fork") {
  const test::Folder folder;
  const fs::path file = folder.path() / "m.so";
  fs::copy_file(test::kGoodModel, file);
  RegistryOptions options = only({folder.path()});
  options.probing = Probing::kAlways;
  Registry registry(options);
  const LoadedPlugin& loaded = registry.load("test.model");
  fs::remove(file);  // another trial would fail
  CHECK(&registry.load("test.model") == &loaded);
}

TEST_CASE("a lock is written, read, verified, and holds every plugin to its digest") {
  const test::Folder folder;
  const fs::path file = folder.path() / "m.so";
  fs::copy_file(test::kGoodModel, file);
  const fs::path lock = folder.path() / "frt.lock";
  write_lock(lock, {lock_entry(file)});
  const LockFile read = read_lock(lock);
  REQUIRE(read.entries.size() == 1);
  CHECK(read.entries[0].id == "test.model");
  CHECK(read.entries[0].file == "m.so");
  CHECK(read.entries[0].bytes == fs::file_size(file));
  CHECK(verify_lock(read, {file}).empty());

  RegistryOptions options = only({folder.path(), test::kPlugins / "devices"});
  options.lock = lock;
  {
    Registry registry(options);
    CHECK(registry.load("test.model").digest == read.entries[0].sha256);
    const frt::Error error = error_of([&] { registry.load("test.empty"); });
    CHECK(error.status() == FRT_ERR_MISMATCH);
    CHECK(has(error.what(), "it is not in the lock"));
  }
  // A byte behind everything that is mapped: the plugin still works, its digest does not.
  fs::remove(file);
  folder.write("m.so", test::read(test::kGoodModel) + "x");
  Registry registry(options);
  const frt::Error error = error_of([&] { registry.load("test.model"); });
  CHECK(error.status() == FRT_ERR_MISMATCH);
  CHECK(has(error.what(), "but the lock demands"));
  const auto problems = verify_lock(read, {file, test::kPlugins / "devices" / "device_empty.so"});
  REQUIRE(problems.size() == 2);
  CHECK(has(problems[0], "the lock says"));
  CHECK(has(problems[1], "is not in the lock"));
}

TEST_CASE("a damaged lock is an error with a position, a missing one is missing") {
  const test::Folder folder;
  const auto refusal = [&](const char* text) {
    return std::string(error_of([&] { read_lock(folder.write("l", text)); }).what());
  };
  CHECK(has(refusal("schema = 2\n"), "a lock starts with `schema = 1`"));
  CHECK(has(refusal("schema = 1\nplugins = 3\n"), "unknown key `plugins`"));
  CHECK(has(refusal("schema = 1\n[[plugin]]\nid = \"a\"\n"), "needs `id` and `sha256`"));
  CHECK(has(refusal("schema = 1\n[[plugin]]\nid = \"a\"\nsha256 = \"12\"\n"), "l:4:1"));
  CHECK(has(refusal("schema = \n"), "TOML syntax"));
  CHECK(error_of([&] { read_lock(folder.path() / "none"); }).status() == FRT_ERR_NOT_FOUND);
  // A few KB of entries that are all wrong do not become megabytes of findings.
  std::string many = "schema = 1\nplugin = [";
  for (int i = 0; i < 1000; ++i) many += "{a=1},";
  const std::string shown = refusal((many + "]\n").c_str());
  CHECK(shown.find("more than 50 errors") != std::string::npos);
  CHECK(shown.size() < 64 << 10);
  RegistryOptions options = only({});
  options.lock = folder.path() / "none";
  CHECK(error_of([&] { Registry registry(options); }).status() == FRT_ERR_NOT_FOUND);
}

TEST_CASE("the automatic choice takes the best card and says why not the others") {
  Registry registry(only({test::kPlugins / "devices"}));
  Opener opener(registry);
  const BackendChoice choice = choose_backend(registry, 1, std::ref(opener));
  CHECK(choice.id == "test.xpu90");
  CHECK(choice.architecture == "xpu_90");
  CHECK(choice.reason == "machine code for xpu_90");
  std::string others;
  for (const std::string& line : choice.others) others += line + "\n";
  CHECK(has(others, "test.xpu80: fits less well, portable code for devices from xpu_80"));
  CHECK(has(others, "test.empty: no driver"));
  CHECK(has(others, "test.processor: is the CPU itself"));
}

TEST_CASE("the automatic choice asks every plugin itself: one that errs hides no other") {
  Registry registry(only({test::kPlugins / "kin", test::kPlugins / "devices"}));
  REQUIRE(registry.ids(FRT_PLUGIN_BACKEND).at(1) == "test.blind");  // asked before test.xpu90
  Opener opener(registry);
  const BackendChoice choice = choose_backend(registry, 1, std::ref(opener));
  CHECK(choice.id == "test.xpu90");
  CHECK(choice.architecture == "xpu_90");
  std::string others;
  for (const std::string& line : choice.others) others += line + "\n";
  CHECK(has(others, "test.blind: no driver"));
  CHECK(has(others, "test.astray: for xpu_90, the device is xpu_10"));
  CHECK(has(others, "test.xpu80: fits less well"));
}

TEST_CASE("the automatic choice never takes the processor, and says how to ask for it") {
  const test::Folder folder;
  for (const char* name : {"device_processor.so", "device_empty.so"}) {
    fs::copy_file(test::kPlugins / "devices" / name, folder.path() / name);
  }
  folder.write("other.so", "x");
  Registry registry(only({folder.path()}));
  Opener opener(registry);
  const frt::Error error = error_of([&] { choose_backend(registry, 0, std::ref(opener)); });
  CHECK(error.status() == FRT_ERR_DEVICE);
  CHECK(has(error.what(), "test.processor: is the CPU itself"));
  CHECK(has(error.what(), "test.empty: no driver"));
  CHECK(has(error.what(), "other.so"));
  CHECK(has(error.what(), "backend = \"frt.cpu\""));
  Registry devices(only({test::kPlugins / "devices"}));
  Opener second(devices);
  CHECK(has(error_of([&] { choose_backend(devices, 5, std::ref(second)); }).what(),
            "sees 2 devices, no ordinal 5"));
}
