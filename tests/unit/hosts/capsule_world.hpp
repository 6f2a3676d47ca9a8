// SPDX-License-Identifier: Apache-2.0
// capsule_world.hpp - an arena without a model, a folder, and registries over both.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "capsule_rig.hpp"
#include "lm/capsules/registry.hpp"

namespace frt::test {

namespace fs = std::filesystem;
using namespace frt::host;

inline constexpr uint64_t kFixed = 512, kRow = 16, kRows = 4096;
using Tokens = std::vector<int32_t>;

inline Tokens counting(int32_t first, uint64_t count) {
  Tokens tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

inline CapsuleContent content_of(Tokens tokens, const std::string& name = "") {
  CapsuleContent content;
  content.name = name;
  content.model = "m";
  content.kind = CapsuleKind::kTurn;
  content.chunk = 16;
  content.tokens = std::move(tokens);
  content.path = {{false, 0, content.boundary()}};
  content.sampling.top_p = content.sampling.repetition_penalty = 1;
  content.digest = digest_of(content.owner, content.tokens);
  return content;
}

// An arena of three slots and a folder, both gone with it.
struct World {
  DeviceRig rig;
  frt_region regions[2] = {{"fixed", FRT_REGION_FIXED, FRT_DTYPE_U8, kFixed, 1, 0},
                           {"rows", FRT_REGION_ROWS, FRT_DTYPE_U8, kRow, kRows, 0}};
  frt::State state;
  frt::Capsules verbs;
  frt::Stream stream;
  TemporaryFolder files;
  fs::path folder = files.path;

  // `model`: another identity; `build`: the same state in another rounding.
  explicit World(const char* model = "1", std::optional<uint32_t> device_flags = {},
                 const char* build = "a")
      : rig(device_flags ? DeviceRig(*device_flags) : DeviceRig()) {
    frt_capsule_layout layout{};
    layout.struct_size = sizeof(layout);
    layout.region_count = 2;
    layout.regions = regions;
    state = frt::State(frt::core::state_table(), rig.context, layout, 3, "arena");
    verbs = frt::Capsules(frt::core::capsules_table(), rig.context, state.handle());
    const frt_fingerprint_field fields[] = {
        {"test", model}, {FRT_FINGERPRINT_BUILD "test", build}, {"model.chunk", "16"}};
    verbs.bind(fields);
    stream = rig.context.create_stream("steps");
  }

  // What a slot holds becomes a pattern of `seed`.
  void fill(uint32_t slot, uint8_t seed) const {
    state.clear(slot, stream);
    state.reserve(slot, 0, kRows, stream);
    std::vector<uint8_t> bytes(state.info().slot_stride);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 7 + seed);
    frt::Buffer::retain(rig.context, state.info().buffer)
        .upload(bytes, stream, slot * state.info().slot_stride);
  }
  // What is valid in it at `boundary`.
  std::string valid(uint32_t slot, uint64_t boundary) const {
    const frt::Capsule copy = verbs.snapshot(slot, boundary, FRT_SPACE_HOST_PINNED, stream);
    copy.sync();
    return copy.read();
  }
  CapsuleRegistry registry(uint64_t device, uint64_t host, uint64_t disk) const {
    return CapsuleRegistry(rig.context, verbs, {device, host, disk, folder});
  }
  // Keeps `tokens` with the pattern of their first token.
  std::string keep(CapsuleRegistry& registry, const Tokens& tokens) const {
    fill(0, static_cast<uint8_t>(tokens[0]));
    return registry.keep(0, content_of(tokens), stream);
  }
  // Restores into a slot that held something else; whether it is the pattern again.
  bool restores(CapsuleRegistry& registry, const std::string& name, const Tokens& tokens) const {
    fill(1, static_cast<uint8_t>(tokens[0]));
    const std::string expected = valid(1, tokens.size());
    fill(2, 0xEE);
    const auto content = registry.restore(name, 2, stream);
    return content->tokens == tokens && valid(2, tokens.size()) == expected;
  }
};

inline constexpr uint64_t kPlenty = uint64_t{1} << 40;

// What body() throws, as "STATUS: text"; empty: nothing.
inline std::string failure(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return std::string(status_name(error.status())) + ": " + error.what();
  }
  return {};
}

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace frt::test
