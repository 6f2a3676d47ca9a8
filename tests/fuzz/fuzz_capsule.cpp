// SPDX-License-Identifier: Apache-2.0
// Any bytes are a capsule file or an error. What is loaded holds together: its boundary is one of
// the arena, it can be read and saved again, and the copy is the same file.
//
// The root digest would keep a fuzzer out, so the input is given a right one before it is used,
// every other time (by its last byte).
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <frt/capsule.hpp>
#include <frt/core/capsules.hpp>
#include <frt/core/context.hpp>
#include <frt/core/digest.hpp>
#include <frt/core/exec_table.hpp>
#include <frt/core/state.hpp>
#include <string>

#include "mock_backend.hpp"

namespace {

// The arena of the seed (tests/fixtures/capsule, tests/unit/capsule).
struct Workshop {
  MockBackend mock;
  frt::Context context;
  frt::State state;
  frt::Capsules capsules;
  std::string folder;

  Workshop() {
    frt::core::ContextOptions options;
    options.name = "dev0";
    context = frt::Context(frt::core::exec_table(),
                           frt::core::open_context(mock.table, mock.plugin(), 0, nullptr, options));
    const frt_region regions[] = {{"state", FRT_REGION_FIXED, FRT_DTYPE_F32, 20, 1, 0},
                                  {"keys", FRT_REGION_ROWS, FRT_DTYPE_BF16, 6, 40, 0},
                                  {"draft", FRT_REGION_ROWS, FRT_DTYPE_BF16, 10, 40, 1}};
    const frt_capsule_layout layout{sizeof(layout), 3, regions, 4, 20};
    state = frt::State(frt::core::state_table(), context, layout, 2, "state");
    capsules = frt::Capsules(frt::core::capsules_table(), context, state.handle());
    const frt_fingerprint_field fields[] = {{"backend", "mock"},
                                            {"plugin.file", "aa11"},
                                            {"model.config", "tiny"},
                                            {"model.weights:a.safetensors", "bb22"},
                                            {"model.chunk", "8"}};
    capsules.bind(fields);
    capsules.fingerprint();
    // In memory where the system has such a file system: every input is a file, and is flushed.
    folder = (std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : "/tmp") +
             std::string("/frt-fuzz-capsule-XXXXXX");
    if (!::mkdtemp(folder.data())) std::abort();
    std::atexit([] { std::filesystem::remove_all(shop().folder); });
  }

  static Workshop& shop() {
    static Workshop& only = *new Workshop;
    return only;
  }
};

uint64_t u64(const std::string& file, std::size_t at) {
  uint64_t value = 0;
  std::memcpy(&value, &file[at], sizeof(value));
  return value;
}

// Makes digests, root and length right, as far as the header's lengths allow.
void sign(std::string& file) {
  constexpr uint64_t kChunk = uint64_t{4} << 20;
  if (file.size() < 64) return;
  const uint64_t size = file.size();
  std::memcpy(&file[16], &size, sizeof(size));
  const uint64_t manifest = u64(file, 24), metadata = u64(file, 32), offset = u64(file, 40);
  const uint64_t payload = u64(file, 48);
  if (manifest > size || metadata > size || offset > size || payload > size - offset) return;
  const uint64_t chunks = (payload + kChunk - 1) / kChunk, table = offset + payload;
  if (64 + manifest + metadata > offset || table + 32 * chunks + 40 != size) return;
  for (uint64_t i = 0; i < chunks; ++i) {
    frt::core::Sha256 sha;
    sha.update(&file[offset + i * kChunk], std::min(kChunk, payload - i * kChunk));
    const auto digest = sha.finish_bytes();
    std::memcpy(&file[table + 32 * i], digest.data(), digest.size());
  }
  frt::core::Sha256 root;
  root.update(file.data(), 64 + manifest + metadata);
  root.update(&file[table], 32 * chunks);
  const auto digest = root.finish_bytes();
  std::memcpy(&file[size - 40], digest.data(), digest.size());
}

void write_file(const std::string& path, const std::string& content) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0 || ::write(file, content.data(), content.size()) < 0) std::abort();
  ::close(file);
}

std::string read_file(const std::string& path) {
  std::string content;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  char block[16384];
  for (ssize_t got; (got = ::read(file, block, sizeof(block))) > 0;) {
    content.append(block, static_cast<std::size_t>(got));
  }
  ::close(file);
  return content;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  Workshop& shop = Workshop::shop();
  const frt_capsules_v1& verbs = shop.capsules.table();
  std::string file(reinterpret_cast<const char*>(data), size);
  if (size > 0 && file.back() % 2 == 0) sign(file);
  write_file(shop.folder + "/in.capsule", file);
  const bool good = verbs.verify(shop.folder.c_str(), "in", nullptr) == FRT_OK;
  try {
    const auto description = frt::describe_capsule(verbs, shop.folder, "in");
    std::string metadata;
    const frt::Capsule capsule = shop.capsules.load(shop.folder, "in", FRT_SPACE_HOST, &metadata);
    if (!good || metadata != description.metadata || capsule.boundary() > 40 ||
        capsule.read().size() != capsule.bytes()) {
      std::abort();
    }
    capsule.save(shop.folder, "out", metadata, FRT_CAPSULE_REPLACE);
    if (read_file(shop.folder + "/out.capsule") != file) std::abort();
  } catch (const frt::Error&) {
    return 0;
  }
  return 0;
}
