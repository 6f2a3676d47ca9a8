// SPDX-License-Identifier: Apache-2.0
// Deterministic mutation of manifests, cards and plugin files: whatever the bytes are, the answer
// is a result or an frt::Error. The same parsers have libFuzzer targets in tests/fuzz.
#include <frt/core/plugin.hpp>
#include <random>

#include "cases.hpp"
#include "manifest_fixture.hpp"
#include "mutated_text.hpp"

using namespace frt::core;

using test::mutated;

TEST_CASE("no mutated manifest does anything but parse or be refused") {
  std::mt19937_64 random(1);
  test::ManifestFixture fixture;
  int accepted = 0, refused = 0;
  const uint64_t cases = frt::test::number_from("FRT_MUTATIONS", 3000);
  for (uint64_t round = 0; round < cases; ++round) {
    const std::string text = mutated(test::kComplete, random);
    try {
      fixture.parse(text);
      ++accepted;
    } catch (const frt::Error& error) {
      CHECK(error.what()[0] != '\0');
      ++refused;
    }
  }
  CHECK(accepted > 30);
  CHECK(refused > 30);
}

TEST_CASE("no mutated card does anything but parse or be refused") {
  const std::string card =
      "id = \"acme.fast\"\nkind = \"backend\"\nabi = \"0.9\"\nversion = \"0.3\"\n"
      "targets = [\"xpu_90\", \"b\"]\nportable = [\"xpu_90\"]\nrequires = [\"driver>=5\"]\n";
  std::mt19937_64 random(2);
  int accepted = 0;
  const uint64_t cases = frt::test::number_from("FRT_MUTATIONS", 3000);
  for (uint64_t round = 0; round < cases; ++round) {
    try {
      const Card parsed = parse_card(mutated(card, random), "fuzz");
      rank_card(parsed, "xpu_90");
      ++accepted;
    } catch (const frt::Error& error) {
      CHECK(error.what()[0] != '\0');
    }
  }
  CHECK(accepted > 30);
}

TEST_CASE("no mutated plugin file does anything but be read or be refused") {
  const std::string whole = test::read(test::kGoodModel);
  const test::Folder folder;
  std::mt19937_64 random(3);
  const uint64_t cases = frt::test::number_from("FRT_MUTATIONS", 3000) / 10;
  for (uint64_t round = 0; round < cases; ++round) {
    std::string bytes = whole;
    // Half of the changes hit the header and the section table, where the reader looks.
    for (int edits = 0; edits < 4; ++edits) {
      const std::size_t region = random() % 2 ? 64 : std::min<std::size_t>(bytes.size(), 4096);
      const std::size_t at = random() % region;
      bytes[random() % 2 ? at : bytes.size() - 1 - at] = static_cast<char>(random());
    }
    const auto path = folder.write("p.so", bytes);
    try {
      read_image(path);
    } catch (const frt::Error& error) {
      CHECK(error.what()[0] != '\0');
    }
  }
}
