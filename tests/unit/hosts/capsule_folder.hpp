// SPDX-License-Identifier: Apache-2.0
// capsule_folder.hpp - a folder of capsules that is shared, damaged or forged, for tests of it.
#pragma once

#include <algorithm>
#include <fstream>
#include <iterator>

#include "capsule/capsule.hpp"

#include "capsule_world.hpp"
#include "lm/capsules/file.hpp"
#include "lm/capsules/name.hpp"

namespace frt::test {

inline const frt_capsules_v1& table() {
  return *frt::core::capsules_table();
}

// A file that any process could have written: right digests, whatever it says.
inline void forge(const World& world, const std::string& name, uint64_t rows,
                  const std::string& metadata) {
  world.verbs.fingerprint();
  const frt::Capsule state = world.verbs.snapshot(0, rows, FRT_SPACE_HOST_PINNED, world.stream);
  state.sync();
  state.save(world.folder, name, metadata);
}

inline void save(const World& world, CapsuleRegistry& registry, const std::string& name,
                 int32_t first) {
  world.fill(0, static_cast<uint8_t>(first));
  registry.save(0, content_of(counting(first, 20), name), world.stream, false);
}

// Files as a disk tier leaves them behind, of which nobody keeps any in memory.
inline std::vector<std::string> leave_automatic(const World& world, int32_t count) {
  std::vector<std::string> names;
  for (int32_t i = 1; i <= count; ++i) {
    CapsuleContent content = content_of(counting(100 * i, 20));
    content.fingerprint = fingerprint_digest(world.verbs.fingerprint());
    content.name = automatic_name(content);
    world.fill(0, static_cast<uint8_t>(100 * i));
    forge(world, content.name, 20, content_to_text(content));
    names.push_back(content.name);
  }
  return names;
}

inline std::vector<std::string> present(const World& world) {
  std::vector<std::string> names = frt::list_capsules(table(), world.folder);
  std::sort(names.begin(), names.end());
  return names;
}

inline std::string found(CapsuleRegistry& registry, int32_t first) {
  const auto match = registry.find(counting(first, 30), "");
  return match ? match->name : "";
}

inline std::string read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

}  // namespace frt::test
