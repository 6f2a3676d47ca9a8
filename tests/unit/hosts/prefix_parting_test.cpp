// SPDX-License-Identifier: Apache-2.0
// Why no longer part of a prompt was reused: what is told when somebody asks for it.
#include "lm/prefix_parting.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "hollow_model.hpp"
#include "lm/session.hpp"

namespace frt::host {
namespace {

using Tokens = std::vector<int32_t>;

Tokens counting(int32_t count) {
  Tokens tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back(i);
  return tokens;
}

}  // namespace

TEST_CASE("the reason names where a prompt parts from the nearest thing known") {
  frt::test::HollowModel world(16);
  const LmModel model = world.model();
  Tokens prompt = counting(30);
  const auto reason = [&](const Tokens& held, const std::vector<Tokens>& capsules) {
    std::vector<std::shared_ptr<const CapsuleContent>> contents;
    for (const Tokens& tokens : capsules) {
      CapsuleContent content;
      content.tokens = tokens;
      contents.push_back(std::make_shared<const CapsuleContent>(std::move(content)));
    }
    PrefixDecision decision;
    decision.reason = "read all 30 tokens";
    decision.parting = prefix_parting(prompt, held, std::move(contents));
    return prefix_reason(decision, prompt, model);
  };
  const std::string plain = "read all 30 tokens";
  CHECK(reason({}, {}) == plain);
  CHECK(reason({90, 91}, {}) == plain);      // nothing in common
  CHECK(reason(counting(12), {}) == plain);  // the prompt goes on from it
  CHECK(reason(counting(30), {}) ==
        plain + "; all 30 tokens are known, but no boundary before the last was kept");
  Tokens parted = counting(20);
  parted[10] = 99;
  const std::string slot = plain +
                           "; first difference at token 10: before [4 5 6 7 8 9 99 11 12 13 14 15],"
                           " now [4 5 6 7 8 9 10 11 12 13 14 15]";
  CHECK(reason(parted, {}) == slot);
  CHECK(reason(parted, {{0, 1, 98}}) == slot);  // a capsule that parts earlier
  CHECK(reason({0, 97}, {parted, {0, 1}}) == slot);
  prompt = {0, 1, 50};
  CHECK(reason({0, 1, 2}, {}) ==
        plain + "; first difference at token 2: before [0 1 2], now [0 1 50]");
}

}  // namespace frt::host
