// SPDX-License-Identifier: Apache-2.0
// Capsules that contradict themselves: what a file says twice, in its state and in its metadata, is
// compared wherever it is read.
#include "capsule_folder.hpp"
#include "lm/capsules/transfer.hpp"

using namespace frt::test;
using frt::Error;

TEST_CASE("metadata of one capsule on the state of another are refused wherever they are read") {
  World world;
  world.fill(0, 1);
  forge(world, "forged", 22, content_to_text(content_of(counting(1, 139), "forged")));
  CHECK(has(failure([&] {
              import_capsule(table(), world.folder / "other", world.folder / "forged.capsule", "a");
            }),
            "139"));
  CHECK(frt::list_capsules(table(), world.folder / "other").empty());
  CHECK(has(failure([&] { verify_capsule_file(table(), world.folder, "forged"); }), "22"));
  CHECK(
      has(failure([&] { export_capsule(table(), world.folder, "forged", world.folder / "copy"); }),
          "22"));
  CapsuleRegistry registry = world.registry(kPlenty, kPlenty, kPlenty);
  CHECK_FALSE(failure([&] { registry.restore("forged", 1, world.stream); }).empty());
  CHECK_FALSE(registry.find(counting(1, 200), ""));
  REQUIRE(registry.take_notices().size() == 1);
}

TEST_CASE(
    "a capsule that becomes another one after the index was read is not restored as the first") {
  World world;
  world.fill(0, 1);
  forge(world, "a", 139, content_to_text(content_of(counting(1, 139), "a")));
  CapsuleRegistry registry = world.registry(kPlenty, kPlenty, 0);
  REQUIRE(registry.find(counting(1, 200), ""));
  fs::remove(world.folder / "a.capsule");
  forge(world, "a", 22, content_to_text(content_of(counting(1, 139), "a")));
  CHECK(has(failure([&] { registry.restore("a", 1, world.stream); }), "22"));
  CHECK_FALSE(registry.find(counting(1, 200), ""));
}

TEST_CASE("content that no host writes is refused by the member") {
  const CapsuleContent good = content_of(counting(1, 20), "a");
  const auto refused = [](const CapsuleContent& content) {
    return failure([&] { content_from_text(content_to_text(content)); });
  };
  REQUIRE(refused(good).empty());
  CapsuleContent content = good;
  content.name = "../a";
  CHECK(has(refused(content), "name"));
  content = good;
  content.parent = "a/b";
  CHECK(has(refused(content), "parent"));
  content = good;
  content.tokens[3] = -7;
  content.digest = digest_of(content.owner, content.tokens);
  CHECK(has(refused(content), "tokens"));
  content = good;
  content.extra = nlohmann::ordered_json::array({1});
  CHECK(has(refused(content), "extra"));
  content = good;
  content.sampling.top_p = -3;
  CHECK(has(refused(content), "top-p"));
  content = good;
  content.sampling.temperature = 1e38f;
  std::string text = content_to_text(content);
  text.replace(text.find("\"top_k\":0"), 9, "\"top_k\":1e300");
  CHECK(has(failure([&] { content_from_text(text); }), "top_k"));
  text = content_to_text(good);
  text.replace(text.find("\"token\":-1"), 10, "\"token\":4294967297");
  CHECK(has(failure([&] { content_from_text(text); }), "pending"));
  text = content_to_text(good);
  const std::string deep = std::string(300'000, '[') + std::string(300'000, ']');
  text.replace(text.find("\"extra\":{}"), 10, "\"extra\":{\"a\":" + deep + "}");
  CHECK(has(failure([&] { content_from_text(text); }), "FRT_ERR_FORMAT"));
}

TEST_CASE("steps of this build stay its own where nothing but what they go on from differs") {
  const FeedPath path = {{false, 0, 16, true}, {false, 16, 20}};
  const auto noted = [&](const char* other_build) {
    CapsuleContent content = content_of(counting(1, 20), "a");
    content.path = path;
    const std::string said = note_builds(content, "a", other_build);
    CHECK(said.find("'a'") != std::string::npos);
    return content.path;
  };
  const FeedPath all = {{false, 0, 16, true}, {false, 16, 20, true}};
  CHECK(noted("") == path);
  CHECK(noted(FRT_FINGERPRINT_CONTINUES ": stored 1234, not here") == path);
  CHECK(noted("build.device: here a, stored b") == all);
  CHECK(noted(FRT_FINGERPRINT_CONTINUES ": stored 1, not here\nbuild.device: here a, stored b") ==
        all);
}

TEST_CASE("what could not be read again is not saved") {
  World world;
  world.fill(0, 1);
  CapsuleRegistry registry = world.registry(0, 0, 0);
  CapsuleContent content = content_of(counting(1, 20), "a");
  nlohmann::ordered_json deep = 1;
  for (int i = 0; i < 200; ++i) deep = nlohmann::ordered_json::array({deep});
  content.extra["messages"] = deep;
  CHECK_FALSE(failure([&] { registry.save(0, content, world.stream, false); }).empty());
  CHECK(present(world).empty());
  CHECK_FALSE(registry.has("a"));
}

TEST_CASE("tokens beyond the vocabulary and another chunk are refused by a registry") {
  World world;
  world.fill(0, 1);
  CapsuleContent content = content_of(counting(1, 20), "a");
  const auto restored = [&](ContentModel model) {
    forge(world, "a", 20, content_to_text(content));
    std::string problem;
    {
      CapsuleOptions options{0, 0, 0, world.folder};
      options.model = model;
      CapsuleRegistry registry(world.rig.context, world.verbs, options);
      problem = failure([&] { registry.restore("a", 1, world.stream); });
    }
    fs::remove(world.folder / "a.capsule");
    return problem;
  };
  CHECK(restored({21, 16}) == "");
  CHECK(has(restored({20, 16}), "token 20"));
  CHECK(has(restored({21, 32}), "prefill_chunk"));
  content.pending.token = 21;
  CHECK(has(restored({21, 16}), "token 21"));
  content.pending.token = -1;
  content.chunk = 8;  // the manifest of the file says 16
  CHECK(has(restored({21, 8}), "chunk"));
}
