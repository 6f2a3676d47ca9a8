// SPDX-License-Identifier: Apache-2.0
// How core chooses among the real CUDA plugins, from their cards and made-up devices, and what a
// user reads on a machine without a driver. Runs without a device.
#include <doctest/doctest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <frt/core/plugin.hpp>
#include <frt/core/runtime.hpp>
#include <frt/error.hpp>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cuda_device.hpp"

using namespace frt::core;
namespace fs = std::filesystem;

namespace {

const fs::path kPlugins = FRT_PLUGIN_DIR;
const fs::path kFakes = FRT_TEST_PLUGINS;
const std::vector<std::string> kArchitectures = {FRT_TEST_ARCHS};  // "90a", ...

std::string number_of(const std::string& architecture) {
  return architecture.substr(0, architecture.find_first_not_of("0123456789"));
}

Card card_of(const std::string& architecture) {
  return read_image(kPlugins / ("frt_cuda_sm" + architecture + ".so")).card;
}

// The architectures that a plugin's file has machine code and PTX for. What nvcc embeds begins with
// 0xBA55ED50, version 1, a header of 16 bytes and the size of what follows it: entries, each with
// its kind (1 PTX, 2 machine code), the sizes of its header and of itself, and at 28 its
// architecture. (Read from what nvcc 13.0 writes; the format is not documented.)
struct DeviceCode {
  std::set<uint32_t> machine, ptx;
};
DeviceCode device_code_of(const std::string& architecture) {
  std::ifstream file(kPlugins / ("frt_cuda_sm" + architecture + ".so"), std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const auto number = [&](std::size_t at, auto value) {
    if (at + sizeof value <= bytes.size()) std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
  };
  const std::string magic = "\x50\xED\x55\xBA";
  DeviceCode code;
  for (std::size_t at = bytes.find(magic); at != std::string::npos; at = bytes.find(magic, at)) {
    const auto header = number(at + 6, uint16_t{0});
    if (number(at + 4, uint16_t{0}) != 1 || header != 16) {
      at += magic.size();
      continue;
    }
    std::size_t entry = at + header;
    at = entry + number(at + 8, uint64_t{0});
    while (entry < at) {
      (number(entry, uint16_t{0}) == 1 ? code.ptx : code.machine)
          .insert(number(entry + 28, uint32_t{0}));
      const std::size_t size = number(entry + 4, uint32_t{0}) + number(entry + 8, uint64_t{0});
      REQUIRE(size > 0);
      entry += size;
    }
  }
  return code;
}

bool has(const std::string& text, const std::string& part) {
  const bool found = text.find(part) != std::string::npos;
  if (!found) MESSAGE("'", part, "' is not in:\n", text);
  return found;
}

// Core as a host has it: the real plugins with their own cards, and a made-up device that answers
// in the place of each CUDA plugin, as if this machine had a driver and that device.
class Host {
 public:
  explicit Host(const std::string& device) {
    RegistryOptions options;
    options.plugin_folders = {kFakes / device};
    options.use_environment = false;
    options.own_folder = kPlugins;
    options.probing = Probing::kNever;
    registry_ = std::make_unique<Registry>(options);
  }
  BackendChoice choose() {
    return choose_backend(*registry_, 0, [this](const std::string& id) -> OpenPlugin& {
      const bool cuda = id.starts_with("frt.cuda.");
      auto& plugin = opened_[cuda ? "a.fake" : id];
      if (!plugin) {
        const LoadedPlugin& loaded = registry_->load(cuda ? "a.fake" : id);
        Diagnostics diagnostics;
        const Config options =
            resolve_config(loaded.schema.plugin_options, {}, ResolveContext{}, diagnostics);
        plugin = std::make_unique<OpenPlugin>(loaded, options, services_);
      }
      return *plugin;
    });
  }

 private:
  Log log_{[] {
    LogOptions options;
    options.descriptor = -1;
    return options;
  }()};
  HostServices services_{log_};
  std::unique_ptr<Registry> registry_;
  std::map<std::string, std::unique_ptr<OpenPlugin>> opened_;
};

// Runs frt-host with the real plugins; its output and exit status.
std::string run_host(const std::string& arguments, int& status) {
  const std::string command = std::string(FRT_TEST_HOST) + " " + arguments + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string text;
  for (char buffer[512]; const std::size_t bytes = fread(buffer, 1, sizeof buffer, pipe);) {
    text.append(buffer, bytes);
  }
  status = WEXITSTATUS(pclose(pipe));
  return text;
}

}  // namespace

TEST_CASE("cards: id, targets, PTX, and how they rank") {
  for (const std::string& architecture : kArchitectures) {
    const Card card = card_of(architecture);
    const std::string number = number_of(architecture);
    CHECK(card.id == "frt.cuda.sm" + number);
    CHECK(card.kind == FRT_PLUGIN_BACKEND);
    CHECK(card.targets == std::vector<std::string>{"sm_" + number});
    // No more than is in the file: a quick build leaves some PTX out.
    const DeviceCode code = device_code_of(architecture);
    CHECK(code.machine == std::set{static_cast<uint32_t>(std::stoul(number))});
    const bool ptx = !code.ptx.empty();
    if (ptx) CHECK(code.ptx == code.machine);
    CHECK(card.portable == (ptx ? std::vector{"sm_" + number} : std::vector<std::string>{}));
    CHECK(has(card.summary, "through PTX") == ptx);
    CHECK(!card.summary.empty());
    CHECK(has(card.requirements.at(0), "driver"));
    CHECK(rank_card(card, "sm_" + number).fit == Fit::kExact);
    CHECK(rank_card(card, "sm_130").fit == (ptx ? Fit::kPortable : Fit::kNone));
    const Ranking refused = rank_card(card, "sm_80");
    CHECK(refused.fit == Fit::kNone);
    CHECK(has(refused.reason, "for sm_" + number));
    CHECK(has(refused.reason, "the device is sm_80"));
    CHECK(rank_card(card, "x86-64-v4").fit == Fit::kNone);
  }
}

TEST_CASE("a made-up device gets the plugin of its architecture") {
  for (const std::string& architecture : kArchitectures) {
    const std::string number = number_of(architecture);
    const BackendChoice choice = Host("sm_" + number).choose();
    CHECK(choice.id == "frt.cuda.sm" + number);
    CHECK(choice.architecture == "sm_" + number);
    CHECK(choice.reason == "machine code for sm_" + number);
  }
}

TEST_CASE("a device between and after the architectures gets the newest PTX that fits it") {
  for (const int device : {103, 130}) {
    int newest = 0;
    for (const std::string& architecture : kArchitectures) {
      if (device_code_of(architecture).ptx.empty()) continue;
      const int number = std::stoi(number_of(architecture));
      if (number < device) newest = std::max(newest, number);
    }
    if (newest == 0) continue;
    const std::string name = "sm_" + std::to_string(device);
    const BackendChoice choice = Host(name).choose();
    CHECK(choice.id == "frt.cuda.sm" + std::to_string(newest));
    CHECK(has(choice.reason, "which the driver translates for " + name));
  }
}

TEST_CASE("an older device gets the reasons") {
  try {
    Host("sm_80").choose();
    FAIL("no plugin runs on sm_80");
  } catch (const frt::Error& error) {
    CHECK(error.status() == FRT_ERR_DEVICE);
    for (const std::string& architecture : kArchitectures) {
      CHECK(has(error.what(),
                "frt.cuda.sm" + number_of(architecture) + ": for sm_" + number_of(architecture)));
    }
  }
}

TEST_CASE("without a device frt-host says what is missing and exits as specified") {
  if (frt::cuda_test::Plugin().devices() > 0) return;
  const std::string id = "frt.cuda.sm" + number_of(kArchitectures.front());
  int status = -1;
  const std::string devices = run_host("devices", status);
  CHECK(has(devices, id + ": no device: "));
  const bool no_driver = devices.find("no NVIDIA driver") != std::string::npos;
  run_host("doctor", status);
  CHECK(status == 0);

  const fs::path manifest = fs::path(FRT_BINARY_DIR) / "cuda_selection_test.toml";
  const auto run = [&](const std::string& backend) {
    std::ofstream(manifest) << "schema = 1\n[device.gpu0]\nbackend = \"" << backend
                            << "\"\n[model.demo]\nplugin = \"frt.qwen36\"\ndevice = \"gpu0\"\n"
                               "checkpoint = \"synthetic:qwen3.6-0.8b-like?format=bf16\"\n";
    return run_host("run " + manifest.string() + " --prompt-ids 1", status);
  };
  const std::string named = run(id);
  CHECK(status == 5);
  CHECK(has(named, "device 'gpu0': backend '" + id + "': device 0 does not exist"));
  if (no_driver) CHECK(has(named, "no NVIDIA driver: libcuda.so.1"));
  const std::string automatic = run("auto");
  CHECK(status == 5);
  CHECK(has(automatic, "backend = \"auto\" found no device"));
  CHECK(has(automatic, id + ": "));
  CHECK(has(automatic, "backend = \"frt.cpu\""));
}

TEST_CASE("a manifest reaches the options of a plugin") {
  const std::string id = "frt.cuda.sm" + number_of(kArchitectures.front());
  const fs::path manifest = fs::path(FRT_BINARY_DIR) / "cuda_options_test.toml";
  std::ofstream(manifest) << "schema = 1\n[device.gpu0]\nbackend = \"" << id
                          << "\"\n[device.gpu0.options]\nactivations = \"fp8\"\n";
  int status = -1;
  const std::string check = "config check " + manifest.string();
  run_host(check, status);
  CHECK(status == 0);
  const std::string set = check + " --set device.gpu0.options.activations=";
  for (const char* value : {"exact", "fp4"}) {
    run_host(set + value, status);
    CHECK(status == 0);
  }
  CHECK(has(run_host(set + "maybe", status), "not one of: exact, fp8, fp4"));
  CHECK(status == 3);
  CHECK(has(run_host(check + " --set device.gpu0.activations=fp8", status),
            "options of the backend belong in [device.gpu0.options]"));
  CHECK(status == 3);
}
