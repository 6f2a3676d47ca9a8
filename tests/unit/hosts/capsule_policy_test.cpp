// SPDX-License-Identifier: Apache-2.0
// Which capsules there are, which one continues a prompt, and where each is: the registry and its
// index over real verbs and files, on an arena without a model.
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "capsule_world.hpp"
#include "lm/capsules/transfer.hpp"
#include "lm/sampling.hpp"

using namespace frt::test;
using frt::Error;

namespace {

std::vector<Tier> tiers_of(const CapsuleRegistry& registry, const std::string& name) {
  for (const CapsuleView& view : registry.list()) {
    if (view.name == name) return view.tiers;
  }
  return {};
}

uint64_t held(CapsuleRegistry& registry) {
  return registry.list().at(0).device_bytes;
}

}  // namespace

// ---- journal, digests, content -----------------------------------------------------------------

TEST_CASE("a journal tells the cuts that its rule does not") {
  TokenJournal journal(16);
  journal.prefill(counting(0, 16));
  journal.prefill(counting(16, 16));
  journal.prefill(counting(32, 5));
  CHECK(journal.path() == FeedPath{{false, 0, 37}});
  journal.prefill(counting(37, 3));  // cut at 37: another stretch
  journal.decode(7);
  journal.decode(8);
  CHECK(journal.path() == FeedPath{{false, 0, 37}, {false, 37, 40}, {true, 40, 42}});
  CHECK_THROWS_AS(journal.prefill(counting(0, 7)), Error);  // crosses 48
  std::vector<std::pair<uint64_t, uint64_t>> steps;
  for_each_step(journal.path(), 16,
                [&](uint64_t begin, uint64_t end, bool) { steps.emplace_back(begin, end); });
  CHECK(steps == std::vector<std::pair<uint64_t, uint64_t>>{
                     {0, 16}, {16, 32}, {32, 37}, {37, 40}, {40, 41}, {41, 42}});
  CHECK(path_from_json(path_to_json(journal.path()), 42) == journal.path());
  CHECK_THROWS_AS(path_from_json(path_to_json(journal.path()), 43), Error);
  CHECK(path_until(journal.path(), 32) == FeedPath{{false, 0, 32}});
  CHECK(on_cold_path({{false, 0, 32}}, 16));
  CHECK_FALSE(on_cold_path({{false, 0, 37}}, 16));
  CHECK_FALSE(on_cold_path(journal.path(), 16));
}

TEST_CASE("prefixes are hashed as if each were hashed alone, and owners apart") {
  const Tokens tokens = counting(5, 1000);
  PrefixHasher hasher("me");
  for (uint64_t at = 0; at < 1000; at += 100) {
    hasher.append(std::span(tokens).subspan(at, 100));
    CHECK(hasher.digest() == digest_of("me", std::span(tokens).first(at + 100)));
  }
  CHECK(digest_of("me", tokens) != digest_of("you", tokens));
  CHECK(digest_from_text(to_text(hasher.digest())) == hasher.digest());
  CHECK_THROWS_AS(digest_from_text("12"), Error);
}

TEST_CASE("metadata comes back as it was, and anything else is refused") {
  CapsuleContent content = content_of(counting(1, 37), "repo");
  content.path = {{false, 0, 32}, {true, 32, 37}};
  content.pending = {12, -0.1f, true};
  content.sampling.seed = UINT64_MAX;
  content.extra = {{"messages", {{{"role", "user"}}}}};
  const std::string text = content_to_text(content);
  const CapsuleContent back = content_from_text(text);
  CHECK(content_to_text(back) == text);
  CHECK(back.tokens == content.tokens);
  CHECK(back.pending.log_probability == content.pending.log_probability);
  CHECK(back.sampling.seed == UINT64_MAX);
  // Any byte changed: refused, or a text of the same shape. Never a crash.
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (const char c : {'\0', '}', '9', 'z'}) {
      std::string mutated = text;
      mutated[i] = c;
      try {
        content_from_text(mutated);
      } catch (const Error&) {
      }
      try {
        content_from_text(text.substr(0, i));
        FAIL_CHECK("a text cut at " << i << " was taken");
      } catch (const Error&) {
      }
    }
  }
  std::string other = text;
  other.replace(other.find("\"boundary\":37"), 13, "\"boundary\":36");
  CHECK_THROWS_AS(content_from_text(other), Error);
}

// ---- finding -----------------------------------------------------------------------------------

TEST_CASE("the longest proper prefix is found, of the same owner, by its tokens") {
  World world;
  CapsuleRegistry registry = world.registry(kPlenty, 0, 0);
  const std::string shorter = world.keep(registry, counting(1, 16));
  const std::string longer = world.keep(registry, counting(1, 48));
  world.keep(registry, counting(2, 64));
  CHECK(registry.find(counting(1, 100), "")->name == longer);
  CHECK(registry.find(counting(1, 49), "")->name == longer);
  CHECK(registry.find(counting(1, 48), "")->name == shorter);  // not the whole prompt
  CHECK_FALSE(registry.find(counting(1, 16), ""));
  CHECK_FALSE(registry.find(counting(1, 100), "somebody"));
  Tokens parted = counting(1, 100);
  parted[40] = 0;
  CHECK(registry.find(parted, "")->name == shorter);
  CHECK(registry.contents("").size() == 3);
  CHECK(registry.contents("somebody").empty());
  CHECK(registry.find(counting(1, 100), "")->cold_path);
  CHECK(world.keep(registry, counting(1, 48)) == longer);  // known already
  CHECK(registry.list().size() == 3);
}

TEST_CASE("what was read cold is preferred to what was decoded") {
  World world;
  CapsuleRegistry registry = world.registry(kPlenty, 0, 0);
  CapsuleContent decoded = content_of(counting(1, 16));
  decoded.path = {{false, 0, 15}, {true, 15, 16}};
  const std::string cold = world.keep(registry, counting(1, 16));
  const std::string other = registry.keep(0, decoded, world.stream);
  CHECK(cold != other);
  CHECK(registry.find(counting(1, 17), "")->name == cold);
}

// ---- tiers -------------------------------------------------------------------------------------

TEST_CASE("a full tier hands down what was used longest ago, and every tier gives the same bytes") {
  World world;
  std::vector<std::string> names;
  std::vector<Tokens> prompts;
  uint64_t each = 0;
  {
    CapsuleRegistry probe = world.registry(kPlenty, 0, 0);
    world.keep(probe, counting(9, 20));
    each = held(probe);
  }
  CapsuleRegistry registry = world.registry(each, 2 * each, kPlenty);
  for (int32_t i = 0; i < 5; ++i) {
    prompts.push_back(counting(10 * i, 20));
    names.push_back(world.keep(registry, prompts.back()));
    registry.settle();
  }
  CHECK(tiers_of(registry, names[4]) == std::vector{Tier::kDevice});
  CHECK(tiers_of(registry, names[3]) == std::vector{Tier::kHost});
  CHECK(tiers_of(registry, names[2]) == std::vector{Tier::kHost});
  CHECK(tiers_of(registry, names[1]) == std::vector{Tier::kDisk});
  CHECK(tiers_of(registry, names[0]) == std::vector{Tier::kDisk});
  CHECK(registry.take_notices().empty());
  for (std::size_t i = 0; i < names.size(); ++i) {
    CAPTURE(i);
    CHECK(registry.find(counting(static_cast<int32_t>(10 * i), 30), "")->name == names[i]);
    CHECK(world.restores(registry, names[i], prompts[i]));
    registry.settle();
  }
  CHECK(registry.list().size() == 5);
}

TEST_CASE("capsules that wait for a slow disk take at most the host's budget a second time") {
  World world;
  uint64_t each = 0;
  {
    CapsuleRegistry probe = world.registry(0, kPlenty, 0);
    world.keep(probe, counting(9, 20));
    each = probe.list().at(0).host_bytes;
  }
  CapsuleRegistry registry = world.registry(0, 4 * each, kPlenty);
  uint64_t most = 0;
  for (int32_t i = 0; i < 300; ++i) {  // each file is synchronised; none of this waits for it
    REQUIRE_FALSE(world.keep(registry, counting(100 * i, 20)).empty());
    most = std::max(most, world.verbs.usage(FRT_SPACE_HOST_PINNED).used_bytes);
  }
  CHECK(most <= (4 + 4 + 1) * each);  // and the one that is taken
  registry.settle();
  CHECK(world.verbs.usage(FRT_SPACE_HOST_PINNED).used_bytes <= 4 * each);
  CHECK(registry.take_notices().empty());
}

TEST_CASE("a capsule that is on the disk alone leaves no tokens in memory") {
  World world;
  uint64_t each = 0;
  {
    CapsuleRegistry probe = world.registry(kPlenty, 0, 0);
    world.keep(probe, counting(9, 20));
    each = held(probe);
  }
  CapsuleRegistry registry = world.registry(each, each, kPlenty);
  std::vector<std::string> names;
  const auto in_memory = [&] {
    registry.settle();
    CHECK(registry.contents("").size() <= 2);  // one in each of the upper tiers
    for (const std::string& name : names) {
      const bool on_disk_alone = tiers_of(registry, name) == std::vector{Tier::kDisk};
      CHECK((registry.in_memory(name) == nullptr) == on_disk_alone);
    }
  };
  for (int32_t i = 0; i < 6; ++i) {
    names.push_back(world.keep(registry, counting(10 * i, 20)));
    registry.settle();
  }
  in_memory();
  CHECK(world.restores(registry, names[0], counting(0, 20)));  // and back to where it came from
  in_memory();
  CHECK(registry.content(names[1])->tokens == counting(10, 20));
}

TEST_CASE("pinned capsules stay, and without lower tiers the others are dropped") {
  World world;
  uint64_t each = 0;
  {
    CapsuleRegistry probe = world.registry(kPlenty, 0, 0);
    world.keep(probe, counting(9, 20));
    each = held(probe);
  }
  CapsuleRegistry registry = world.registry(2 * each, 0, 0);
  const std::string pinned = world.keep(registry, counting(1, 20));
  registry.pin(pinned, true);
  std::string last;
  for (int32_t i = 2; i < 8; ++i) last = world.keep(registry, counting(i * 100, 20));
  CHECK(registry.list().size() == 2);
  CHECK(tiers_of(registry, pinned) == std::vector{Tier::kDevice});
  CHECK(tiers_of(registry, last) == std::vector{Tier::kDevice});
  registry.pin(last, true);
  CHECK(world.keep(registry, counting(900, 20)).empty());  // no room that may be taken
  CHECK_FALSE(registry.make_room());
  registry.pin(last, false);
  CHECK(registry.make_room());
  CHECK(tiers_of(registry, pinned) == std::vector{Tier::kDevice});
}

TEST_CASE("the disk budget drops old automatic capsules and nothing that has a name") {
  World world;
  uint64_t file = 0, each = 0;
  {
    CapsuleRegistry probe = world.registry(0, kPlenty, 0);
    world.fill(0, 1);
    probe.save(0, content_of(counting(1, 20), "repo"), world.stream, false);
    file = probe.list().at(0).file_bytes;
    each = probe.list().at(0).host_bytes;
  }
  CapsuleRegistry registry = world.registry(0, each, 3 * file);
  std::string last;
  for (int32_t i = 2; i < 10; ++i) {
    last = world.keep(registry, counting(i * 100, 20));
    registry.settle();
  }
  uint64_t automatic = 0, count = 0;
  for (const CapsuleView& view : registry.list()) {
    if (view.name == "repo") continue;
    automatic += view.file_bytes;
    ++count;
  }
  CHECK(automatic <= 3 * file);
  CHECK(automatic > 0);
  CHECK(count < 8);
  CHECK(tiers_of(registry, last) == std::vector{Tier::kHost});
  CHECK(fs::exists(world.folder / "repo.capsule"));
  CHECK(world.restores(registry, "repo", counting(1, 20)));
}

// ---- files and index ---------------------------------------------------------------------------

TEST_CASE("what was saved is there for the next process, however its index fared") {
  World world;
  const auto save = [&](CapsuleRegistry& registry, const std::string& name, int32_t first) {
    world.fill(0, static_cast<uint8_t>(first));
    registry.save(0, content_of(counting(first, 20), name), world.stream, false);
  };
  {
    CapsuleRegistry registry = world.registry(0, 0, 0);
    save(registry, "one", 1);
    save(registry, "two", 2);
    registry.pin("two", true);
    CHECK(has(failure([&] { save(registry, "one", 1); }), "FRT_ERR_EXISTS"));
    CHECK(has(failure([&] { save(registry, "../x", 1); }), "FRT_ERR_INVALID_ARGUMENT"));
  }
  const fs::path index = world.folder / "index.sqlite";
  const auto check = [&](uint64_t read, uint64_t gone) {
    CapsuleRegistry registry = world.registry(0, 0, 0);
    CHECK(registry.opening().read == read);
    CHECK(registry.opening().gone == gone);
    for (const CapsuleView& view : registry.list()) {
      CHECK(view.pinned == (view.name == "two"));
      const int32_t first = view.name == "one" ? 1 : view.name == "two" ? 2 : 3;
      CHECK(world.restores(registry, view.name, counting(first, 20)));
    }
    return registry.list().size();
  };
  CHECK(check(0, 0) == 2);
  SUBCASE("deleted") {
    for (const char* suffix : {"", "-wal", "-shm"}) fs::remove(index.string() + suffix);
    CHECK(check(2, 0) == 2);
  }
  SUBCASE("damaged") {
    std::ofstream(index, std::ios::trunc) << std::string(8192, 'x');
    CHECK(check(2, 0) == 2);
    CHECK(check(0, 0) == 2);
  }
  SUBCASE("stale: a file vanished, another came") {
    fs::rename(world.folder / "one.capsule", world.folder / "three.capsule");
    CapsuleRegistry registry = world.registry(0, 0, 0);
    CHECK(registry.opening().read == 1);
    CHECK(registry.opening().gone == 1);
    CHECK(world.restores(registry, "three", counting(1, 20)));
    CHECK_FALSE(registry.has("one"));
  }
  SUBCASE("stale: a file was replaced") {
    CapsuleRegistry registry = world.registry(0, 0, 0);
    world.fill(0, 3);
    registry.save(0, content_of(counting(3, 20), "three"), world.stream, false);
    fs::copy_file(world.folder / "three.capsule", world.folder / "one.capsule",
                  fs::copy_options::overwrite_existing);
    CapsuleRegistry next = world.registry(0, 0, 0);
    CHECK(next.opening().read == 1);
    CHECK(world.restores(next, "one", counting(3, 20)));
  }
  CHECK((fs::status(index).permissions() & fs::perms::all) ==
        (fs::perms::owner_read | fs::perms::owner_write));
}

TEST_CASE("with shared memory files are written from the device's tier and read into it") {
  const World world("1", FRT_DEVICE_SHARED_MEMORY);
  const Tokens tokens = counting(1, 100);
  const auto pinned = [&] {
    return world.rig.context.counters().buffer_bytes[FRT_SPACE_HOST_PINNED];
  };
  {
    CapsuleRegistry registry = world.registry(kPlenty, kPlenty, kPlenty);
    world.fill(0, 1);
    registry.save(0, content_of(tokens, "named"), world.stream, false);
    const CapsuleView view = registry.list().at(0);
    CHECK(view.device_bytes > 0);
    CHECK(view.host_bytes == 0);
  }
  CapsuleRegistry registry = world.registry(kPlenty, kPlenty, kPlenty);
  CHECK(pinned() == 0);
  REQUIRE(registry.fetch("named"));
  registry.wait("named");
  CHECK(registry.list().at(0).device_bytes > 0);
  CHECK(registry.list().at(0).host_bytes == 0);
  CHECK(pinned() == 0);
  CHECK(world.restores(registry, "named", tokens));

  // Without a tier on the device it is the host's, as anywhere.
  CapsuleRegistry host_alone = world.registry(0, kPlenty, kPlenty);
  REQUIRE(host_alone.fetch("named"));
  host_alone.wait("named");
  CHECK(host_alone.list().at(0).host_bytes > 0);
  CHECK(world.restores(host_alone, "named", tokens));
}

TEST_CASE("a capsule of another build is used by its name, with a notice, and found by no prompt") {
  World before("1", {}, "a"), after("1", {}, "b");
  after.folder = before.folder;
  const Tokens tokens = counting(3, 48);
  before.fill(0, 3);
  {
    CapsuleRegistry registry = before.registry(0, 0, 0);
    registry.save(0, content_of(tokens, "mine"), before.stream, false);
  }
  Tokens prompt = tokens;
  prompt.push_back(9);
  CapsuleRegistry registry = after.registry(kPlenty, kPlenty, kPlenty);
  registry.take_notices();
  CHECK_FALSE(registry.find(prompt, ""));
  CHECK(after.restores(registry, "mine", tokens));
  const std::vector<std::string> notices = registry.take_notices();
  REQUIRE(notices.size() == 1);
  CHECK(
      has(notices[0], "capsule 'mine' was stored by another build (build.test: here b, stored a)"));
  CHECK_FALSE(registry.find(prompt, ""));  // nor now that it is in memory

  // What continues from it says so, is not kept for prompts, and is saved under a name.
  CapsuleContent longer = content_of(prompt, "longer");
  longer.path = registry.content("mine")->path;
  CHECK(has_other_build(longer.path));
  longer.path.push_back({true, 48, 49});
  after.state.reserve(2, 48, 49, after.stream);
  CHECK(registry.keep(2, longer, after.stream).empty());
  registry.save(2, longer, after.stream, false);
  prompt.push_back(10);
  CHECK_FALSE(registry.find(prompt, ""));
  CapsuleRegistry later = after.registry(kPlenty, kPlenty, kPlenty);
  CHECK_FALSE(later.find(prompt, ""));
  CHECK(later.content("longer")->path == longer.path);
  const std::vector<std::string> told = later.take_notices();
  CHECK(std::any_of(told.begin(), told.end(), [](const std::string& notice) {
    return has(notice, "'longer' has a part that another build computed");
  }));
}

TEST_CASE("steps that another build computed do not join those of this one") {
  TokenJournal journal(16);
  FeedPath path = {{false, 0, 32}};
  set_other_build(path);
  journal.assign(counting(0, 32), path);
  journal.prefill(counting(32, 16));
  journal.decode(1);
  const FeedPath expected = {{false, 0, 32, true}, {false, 32, 48}, {true, 48, 49}};
  CHECK(journal.path() == expected);
  CHECK(path_from_json(path_to_json(expected), 49) == expected);
  CHECK_FALSE(on_cold_path(path, 16));
  CHECK(has(failure([] {
              path_from_json(nlohmann::ordered_json::parse(R"([["prefill", 0, 8, "x"]])"), 8);
            }),
            "other-build"));
}

TEST_CASE("a file that is damaged or gone when it is needed is reported and forgotten") {
  World world;
  {
    CapsuleRegistry registry = world.registry(0, 0, 0);
    for (const char* name : {"bad", "lost", "good"}) {
      world.fill(0, 1);
      registry.save(0, content_of(counting(name[0], 20), name), world.stream, false);
    }
  }
  CapsuleRegistry registry = world.registry(0, 0, 0);
  {
    std::fstream file(world.folder / "bad.capsule", std::ios::in | std::ios::out);
    file.seekp(-2000, std::ios::end);
    file.put('\x5A');
    file.put('\xA5');
    file.put('\x11');
  }
  fs::remove(world.folder / "lost.capsule");
  for (const char* name : {"bad", "lost"}) {
    CAPTURE(name);
    REQUIRE(registry.find(counting(name[0], 30), ""));
    CHECK(has(failure([&] { registry.restore(name, 1, world.stream); }), name));
    CHECK_FALSE(registry.find(counting(name[0], 30), ""));
  }
  CHECK(registry.find(counting('g', 30), "")->name == "good");
}

TEST_CASE("a full disk loses nothing: the capsule stays in memory, and says so") {
  World world;
  std::signal(SIGXFSZ, SIG_IGN);
  CapsuleRegistry registry = world.registry(0, kPlenty, kPlenty);
  const std::string name = world.keep(registry, counting(1, 20));
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit tight{600, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &tight);
  const std::string saved =
      failure([&] { registry.save(0, content_of(counting(5, 20), "named"), world.stream, false); });
  setrlimit(RLIMIT_FSIZE, &before);
  CHECK(has(saved, "FRT_ERR_IO"));
  CHECK_FALSE(registry.has("named"));
  CHECK(world.restores(registry, name, counting(1, 20)));
  registry.save(0, content_of(counting(5, 20), "named"), world.stream, false);
  CHECK(registry.has("named"));
}

TEST_CASE("without a folder saving names the option; a folder of others is refused") {
  World world;
  world.fill(0, 1);
  CapsuleRegistry none(world.rig.context, world.verbs, {0, 0, 0, {}});
  CHECK(has(failure([&] { none.save(0, content_of(counting(1, 5), "a"), world.stream, false); }),
            "capsule_dir"));
  fs::permissions(world.folder, fs::perms::all);
  CHECK(has(failure([&] { world.registry(0, 0, 0); }), world.folder.string()));
}

TEST_CASE("export and import carry a capsule, and take nothing that is damaged or there already") {
  World world;
  {
    CapsuleRegistry registry = world.registry(0, 0, 0);
    world.fill(0, 4);
    registry.save(0, content_of(counting(4, 20), "a"), world.stream, false);
  }
  const frt_capsules_v1& table = *frt::core::capsules_table();
  const fs::path out = world.folder / "out.bin", other = world.folder / "other";
  export_capsule(table, world.folder, "a", out);
  CHECK(has(failure([&] { export_capsule(table, world.folder, "a", out); }), "FRT_ERR_EXISTS"));
  CHECK(has(failure([&] { export_capsule(table, world.folder, "b", out); }), "FRT_ERR_NOT_FOUND"));
  CHECK(import_capsule(table, other, out, "b") == "b");
  CHECK(has(failure([&] { import_capsule(table, other, out, "b"); }), "FRT_ERR_EXISTS"));
  CHECK(
      has(failure([&] { import_capsule(table, other, out, "../b"); }), "FRT_ERR_INVALID_ARGUMENT"));
  fs::resize_file(out, fs::file_size(out) - 1);
  CHECK(has(failure([&] { import_capsule(table, other, out, "c"); }), "FRT_ERR_FORMAT"));
  CHECK(frt::list_capsules(table, other) == std::vector<std::string>{"b"});
  std::size_t left = 0;
  for (const auto& entry : fs::directory_iterator(other)) left += entry.path().filename() != "";
  CHECK(left == 1);
  CapsuleRegistry registry(world.rig.context, world.verbs, {0, 0, 0, other});
  CHECK(world.restores(registry, "b", counting(4, 20)));
}
