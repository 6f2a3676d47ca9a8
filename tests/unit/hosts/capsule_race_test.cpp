// SPDX-License-Identifier: Apache-2.0
// A registry ends, a capsule is removed or read, and budgets are kept, while others are saved, read
// and moved between the tiers.
#include <doctest/doctest.h>

#include <map>
#include <random>

#include "capsule_world.hpp"

using namespace frt::test;

namespace {

// One capsule that somebody named, as its ends told.
struct Named {
  Tokens tokens;
  bool saved = false, asked_to_go = false, gone = false;
};

std::size_t files_in(const fs::path& folder) {
  std::size_t count = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".capsule") ++count;
  }
  return count;
}

}  // namespace

TEST_CASE(
    "a registry that ends at any moment has told all ends, and loses nothing it said was saved") {
  std::mt19937_64 random(11);
  for (int round = 0; round < 30; ++round) {
    CAPTURE(round);
    const World world;
    std::map<std::string, Named> named;
    int asked = 0, told = 0;
    {
      CapsuleRegistry registry = world.registry(1 << 14, 1 << 14, kPlenty);
      for (uint64_t step = random() % 60; step > 0; --step) {
        const auto first = static_cast<int32_t>(1 + random() % 200);
        const Tokens tokens = counting(first, 20 + random() % 200);
        const std::string name = "n" + std::to_string(random() % 6);
        Named& its = named[name];
        switch (random() % 6) {
          case 0:
            world.keep(registry, tokens);
            break;
          case 1:
            if (registry.has(name) || its.asked_to_go || !its.tokens.empty()) break;
            world.fill(0, static_cast<uint8_t>(first));
            its.tokens = tokens;
            ++asked;
            registry.save_later(0, content_of(tokens, name), world.stream,
                                [&](const std::exception_ptr& met) {
                                  ++told;
                                  its.saved = !met;
                                });
            break;
          case 2:
            if (!its.saved || its.asked_to_go) break;
            if (has(failure([&] {
                      registry.remove_later(name, [&](const std::exception_ptr& met) {
                        ++told;
                        its.gone = !met;
                      });
                    }),
                    "FRT_ERR_NOT_READY")) {
              break;
            }
            ++asked;
            its.asked_to_go = true;
            break;
          case 3:
            if (its.saved && !its.asked_to_go) registry.fetch(name);
            break;
          case 4:
            if (its.saved && !its.asked_to_go) CHECK(world.restores(registry, name, its.tokens));
            break;
          default:
            registry.tend();
        }
      }
    }
    CHECK(told == asked);
    CapsuleRegistry next = world.registry(kPlenty, kPlenty, kPlenty);
    for (const auto& one : named) {
      const auto& name = one.first;
      const auto& its = one.second;
      CAPTURE(name);
      CHECK(next.has(name) == (its.saved && !its.gone));
      if (next.has(name)) CHECK(world.restores(next, name, its.tokens));
    }
    CHECK(files_in(world.folder) == next.list().size());
  }
}

TEST_CASE("budgets are kept when the last thing that happened was in the background") {
  const World world;
  CapsuleRegistry registry = world.registry(1 << 14, 1 << 14, kPlenty);
  for (int32_t i = 0; i < 40; ++i) {
    world.keep(registry, counting(1 + 50 * i, 40));
    registry.tend();
  }
  registry.settle();
  uint64_t device = 0, host = 0;
  for (const CapsuleView& view : registry.list()) {
    device += view.device_bytes;
    host += view.host_bytes;
  }
  CHECK(device <= 1 << 14);
  CHECK(host <= 1 << 14);
}
