// SPDX-License-Identifier: Apache-2.0
// The budget that all messages of a server count against.
#include "net/memory.hpp"

#include <doctest/doctest.h>

#include <string>
#include <utility>

using namespace frt::host;

TEST_CASE("a budget gives all that is asked for or nothing") {
  MemoryBudget budget(100);
  CHECK(budget.take(60));
  CHECK_FALSE(budget.take(41));
  CHECK(budget.used() == 60);
  budget.add(60);  // a reply is never refused
  CHECK_FALSE(budget.take(1));
  CHECK_FALSE(budget.take(~uint64_t{0}));
  budget.give(120);
  CHECK(budget.take(100));
}

TEST_CASE("a message counts before it grows, keeps its bytes, and gives everything back") {
  MemoryBudget budget(uint64_t{1} << 20);
  {
    MessageBuffer message(budget);
    CHECK(budget.used() == 0);
    std::string expected;
    for (int i = 0; message.reserve(message.size() + 1000, budget.limit()); ++i) {
      const std::string part(1000, static_cast<char>('a' + i % 26));
      message.append(part.data(), part.size());
      expected += part;
      CHECK(budget.used() == message.capacity());
      REQUIRE(message.size() <= budget.limit());
    }
    CHECK(message.bytes() == expected);
    CHECK(message.size() > 700'000);  // most of the budget can be used
    MessageBuffer other(budget);
    CHECK_FALSE(other.reserve(budget.limit() - budget.used() + 1, 0));
    other = std::move(message);
    CHECK(other.bytes() == expected);
    CHECK(message.capacity() == 0);
    other.clear();
    CHECK(budget.used() == other.capacity());
    other.release();
    CHECK(budget.used() == 0);
    CHECK(other.reserve(10, 10));
  }
  CHECK(budget.used() == 0);
}

TEST_CASE("memory that the system does not have is refused like the budget, and not counted") {
  MemoryBudget budget(~uint64_t{0});
  MessageBuffer message(budget);
  REQUIRE(message.reserve(5, 5));
  message.append("hello", 5);
  const uint64_t used = budget.used();
  CHECK_FALSE(message.reserve(uint64_t{1} << 60, 0));
  CHECK(budget.used() == used);
  CHECK(message.bytes() == "hello");
}
