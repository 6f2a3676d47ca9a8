// SPDX-License-Identifier: Apache-2.0
// What a registry does in the background for a driver that others need meanwhile.
#include <doctest/doctest.h>

#include <chrono>
#include <frt/io/file.hpp>
#include <thread>

#include "capsule_world.hpp"
#include "lm/capsules/transfer.hpp"

using namespace frt::test;

namespace {

// How something ended: once, with the text of what it met.
struct Ending {
  int times = 0;
  std::string text;

  BackgroundWorker::End end() {
    return [this](const std::exception_ptr& met) {
      ++times;
      if (met) text = failure([&] { std::rethrow_exception(met); });
    };
  }
  const std::string& of(CapsuleRegistry& registry) {
    while (times == 0) {
      registry.tend();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return text;
  }
};

}  // namespace

TEST_CASE("what is saved later is there when its end comes, whole and for the next process") {
  const World world;
  const Tokens tokens = counting(5, 100);
  {
    CapsuleRegistry registry = world.registry(kPlenty, kPlenty, kPlenty);
    world.fill(0, 5);
    Ending first, second;
    registry.save_later(0, content_of(tokens, "kept"), world.stream, first.end());
    registry.save_later(0, content_of(counting(6, 50), "kept"), world.stream, second.end());
    CHECK_FALSE(registry.has("kept"));  // no end before a tend()
    CHECK(first.of(registry).empty());
    CHECK(has(second.of(registry), "FRT_ERR_EXISTS"));
    CHECK(registry.find(counting(5, 101), "")->name == "kept");
    CHECK(world.restores(registry, "kept", tokens));
    Ending third;
    CHECK(has(failure([&] {
                registry.save_later(0, content_of(tokens, "kept"), world.stream, third.end());
              }),
              "FRT_ERR_EXISTS"));
    CHECK(third.times == 0);
    CHECK(first.times + second.times == 2);
  }
  CapsuleRegistry next = world.registry(kPlenty, kPlenty, kPlenty);
  CHECK(world.restores(next, "kept", tokens));
}

TEST_CASE("what is removed later is found by nobody from then on, and its file goes") {
  const World world;
  CapsuleRegistry registry = world.registry(kPlenty, kPlenty, kPlenty);
  world.fill(0, 5);
  registry.save(0, content_of(counting(5, 100), "kept"), world.stream, false);
  const std::string automatic = world.keep(registry, counting(9, 60));
  Ending memory, file;
  registry.remove_later(automatic, memory.end());
  CHECK(memory.times == 1);  // it had no file
  CHECK_FALSE(registry.has(automatic));
  registry.remove_later("kept", file.end());
  CHECK_FALSE(registry.has("kept"));
  CHECK_FALSE(registry.find(counting(5, 101), "").has_value());
  CHECK(has(failure([&] { registry.remove_later("kept", file.end()); }), "FRT_ERR_NOT_READY"));
  CHECK(file.of(registry).empty());
  CHECK(has(failure([&] { registry.remove_later("kept", file.end()); }), "FRT_ERR_NOT_FOUND"));
  CHECK_FALSE(fs::exists(world.folder / "kept.capsule"));
}

TEST_CASE("a pin that is set later is on the disk when its end comes") {
  const World world;
  CapsuleRegistry registry = world.registry(kPlenty, kPlenty, kPlenty);
  world.fill(0, 5);
  registry.save(0, content_of(counting(5, 100), "kept"), world.stream, false);
  Ending set, taken;
  registry.pin_later("kept", true, set.end());
  CHECK(set.of(registry).empty());
  CHECK(fs::exists(world.folder / "kept.pin"));
  CHECK(registry.list()[0].pinned);
  registry.pin_later("kept", false, taken.end());
  CHECK(taken.of(registry).empty());
  CHECK_FALSE(fs::exists(world.folder / "kept.pin"));
  CHECK_FALSE(registry.list()[0].pinned);
}

TEST_CASE("bytes of a capsule are kept if they are whole and accepted, and count when adopted") {
  const World world;
  CapsuleRegistry registry = world.registry(kPlenty, kPlenty, kPlenty);
  const Tokens tokens = counting(5, 100);
  world.fill(0, 5);
  registry.save(0, content_of(tokens, "kept"), world.stream, false);
  std::string bytes = frt::io::read_file(world.folder / "kept.capsule", "capsule", 1 << 24);
  const auto import = [&](const std::string& name, const auto& accept) {
    return failure([&] {
      IncomingCapsule incoming(world.folder, false);
      // In parts of all sizes.
      std::string_view rest = bytes;
      for (std::size_t size = 0; !rest.empty(); ++size) {
        incoming.write(rest.substr(0, size));
        rest.remove_prefix(std::min(size, rest.size()));
      }
      incoming.keep(world.verbs.table(), name, accept);
    });
  };
  const auto any = [](const CapsuleContent&) {};
  bytes[bytes.size() / 2] ^= 1;
  CHECK(has(import("other", any), "FRT_ERR_FORMAT"));
  bytes[bytes.size() / 2] ^= 1;
  const auto nobody = [](const CapsuleContent& content) {
    throw frt::Error(FRT_ERR_MISMATCH, std::to_string(content.boundary()));
  };
  CHECK(has(import("other", nobody), "FRT_ERR_MISMATCH: 100"));
  CHECK(has(import("kept", any), "FRT_ERR_EXISTS"));
  CHECK(has(import("../other", any), "FRT_ERR_INVALID_ARGUMENT"));
  CHECK_FALSE(fs::exists(world.folder / "other.capsule"));
  Ending none, adopted;
  registry.adopt_later("other", none.end());
  CHECK(has(none.of(registry), "FRT_ERR_NOT_FOUND"));
  CHECK(import("other", any).empty());
  CHECK_FALSE(registry.has("other"));
  registry.adopt_later("other", adopted.end());
  CHECK(adopted.of(registry).empty());
  CHECK(world.restores(registry, "other", tokens));
}
