// SPDX-License-Identifier: Apache-2.0
// Loading: from a path to a checked descriptor. The steps and their order are the point:
//
//   1. open the file once; read card, machine and sanitizer from its bytes
//   2. digest of that open file, if one is demanded
//   3. map it (rtld_now: a missing symbol is named now and not in the middle of work; rtld_local)
//   4. a copy of the descriptor: size, ABI, functions; equal to the card
//   5. the option schema
//   6. park the library for ever
//
// A library that was mapped and then refused is parked as well: its constructors have run, and
// unloading is where libraries crash.
#include <frt/contracts.hpp>
#include <frt/core/digest.hpp>
#include <frt/core/plugin.hpp>
#include <frt/io/file.hpp>
#include <frt/text.hpp>
#include <frt/version.hpp>

#include "plugin/plugin_file.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/stat.h>

#define BOOST_DLL_USE_STD_FS
#include <boost/dll/shared_library.hpp>
#include <deque>
#include <map>

namespace frt::core {

namespace {

namespace dll = boost::dll;

// Every library of this process. Never destroyed, so that nothing is unloaded at exit either.
struct Park {
  struct Parked {
    dll::shared_library library;
    io::Descriptor file;  // open for as long as the library is mapped through it
  };
  std::deque<Parked> libraries;
  std::deque<LoadedPlugin> plugins;                                // stable addresses
  std::map<std::pair<uint64_t, uint64_t>, LoadedPlugin*> by_file;  // (device, inode)
};

Park& park() {
  static Park* const forever = new Park;
  return *forever;
}

void check_digest(const LoadRequest& request, const std::string& found) {
  if (request.digest.empty() || request.digest == found) return;
  throw Error(FRT_ERR_MISMATCH,
              fmt::format("plugin '{}' has digest {}, but the lock demands {}; if the update is "
                          "wanted, write the lock again",
                          request.path.string(), found, request.digest));
}

}  // namespace

const frt_plugin_desc* map_plugin(const std::filesystem::path& path, io::Descriptor file) {
  dll::shared_library library;
  dll::fs::error_code code;
  library.load(path, code, dll::load_mode::rtld_now | dll::load_mode::rtld_local);
  if (code) {
    // The linker's own text names the symbol or library; the code says "Bad file descriptor".
    const char* reason = ::dlerror();
    throw Error(FRT_ERR_FORMAT,
                "the dynamic linker refuses it: " + (reason ? reason : code.message()));
  }
  Park::Parked& parked =
      park().libraries.emplace_back(Park::Parked{std::move(library), std::move(file)});
  if (!parked.library.has(FRT_PLUGIN_SYMBOL)) {
    throw Error(FRT_ERR_FORMAT, "it has a card but exports no " FRT_PLUGIN_SYMBOL
                                "; build it with frt_add_plugin()");
  }
  return &parked.library.get<const frt_plugin_desc>(FRT_PLUGIN_SYMBOL);
}

frt_plugin_desc read_descriptor(const frt_plugin_desc& given, const Card& card) {
  // The version first: it says what the size may be.
  if (oldest_abi(given.abi_major, given.abi_minor) != oldest_abi()) {
    throw Error(FRT_ERR_ABI,
                fmt::format("its descriptor speaks ABI {}.{}, this host {}.{}", given.abi_major,
                            given.abi_minor, FRT_ABI_MAJOR, FRT_ABI_MINOR));
  }
  const auto descriptor = read_table<frt_plugin_desc>(&given, {});
  const auto equal = [](const char* what, std::string_view of_card, std::string_view other) {
    if (of_card == other) return;
    throw Error(FRT_ERR_ABI, fmt::format("card and descriptor disagree on the {}: '{}' and '{}'",
                                         what, of_card, other));
  };
  equal("id", card.id, checked_text(descriptor.id, "its descriptor's id"));
  equal("version", card.version, checked_text(descriptor.version, "its descriptor's version"));
  equal("kind", plugin_kind_name(card.kind), plugin_kind_name(descriptor.kind));
  checked_text(descriptor.build, "its descriptor's build");
  if (const std::string problem = sanitizer_refusal(descriptor.sanitizer); !problem.empty()) {
    throw Error(FRT_ERR_ABI, problem);
  }
  return descriptor;
}

ConfigSchema ask_schema(const frt_plugin_desc& descriptor, const std::string& id) {
  const auto* schema =
      static_cast<const frt_config_schema_v1*>(contain("plugin " + id, "extension", [&] {
        return descriptor.extension(nullptr, FRT_EXT_CONFIG_SCHEMA);
      }));
  return schema ? read_schema(*schema, id) : ConfigSchema();
}

// The builds of a capsule say what was chosen of a backend's options, not of a model's: those are
// in the model's own fingerprint.
void check_numerics(const LoadedPlugin& plugin) {
  if (plugin.card.kind == FRT_PLUGIN_BACKEND) return;
  for (const auto* options : {&plugin.schema.plugin_options, &plugin.schema.options}) {
    for (const OptionSpec& option : *options) {
      if (!option.numerics) continue;
      throw Error(FRT_ERR_FORMAT, "plugin " + plugin.card.id + ": its option '" + option.key +
                                      "' is FRT_OPTION_NUMERICS, which is for backends; a model "
                                      "puts its value into its own fingerprint");
    }
  }
}

const LoadedPlugin& load_plugin(const LoadRequest& request) {
  const auto alone = lock_plugin_setup();
  const std::string name = request.path.string();
  io::Descriptor file = io::open_file(request.path, "plugin");
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) throw Error(FRT_ERR_IO, "cannot examine '" + name + "'");
  const std::pair<uint64_t, uint64_t> identity(info.st_dev, info.st_ino);
  if (const auto found = park().by_file.find(identity); found != park().by_file.end()) {
    if (!request.digest.empty()) check_digest(request, sha256_file(file.get(), name));
    return *found->second;
  }

  PluginImage image = read_image(file.get(), name);
  if (const std::string problem = sanitizer_refusal(image.sanitizer); !problem.empty()) {
    throw Error(FRT_ERR_ABI, "plugin '" + name + "': " + problem);
  }
  LoadedPlugin plugin;
  plugin.path = request.path;
  std::filesystem::path mapped = request.path;
  io::Descriptor kept;
  if (!request.digest.empty()) {
    plugin.digest = sha256_file(file.get(), name);
    check_digest(request, plugin.digest);
    mapped = "/proc/self/fd/" + std::to_string(file.get());
    kept = std::move(file);
  }
  try {
    plugin.descriptor = std::make_shared<const frt_plugin_desc>(
        read_descriptor(*map_plugin(mapped, std::move(kept)), image.card));
    plugin.card = std::move(image.card);
    if (request.entering) request.entering("extension");
    plugin.schema = ask_schema(*plugin.descriptor, plugin.card.id);
    check_numerics(plugin);
  } catch (const Error& error) {
    throw Error(error.status(), "plugin '" + name + "': " + error.what());
  }
  LoadedPlugin& stored = park().plugins.emplace_back(std::move(plugin));
  park().by_file.emplace(identity, &stored);
  return stored;
}

}  // namespace frt::core
