// SPDX-License-Identifier: Apache-2.0
// The bookkeeping of pages against a memory that remembers every write: whatever slots and
// capsules do, each of them finds the rows it wrote or took over, and no page is lost.
#include "capsule/page_table.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

using frt::core::PageTable;
using Result = PageTable::Result;

namespace {

// What a reader expects: a stamp for every row, of a region without lag and of one with.
struct Rows {
  std::vector<uint64_t> now, lagged;
  uint64_t boundary() const { return now.size(); }
};

struct Capsule {
  Rows rows;
  std::vector<int32_t> pages;
};

class World {
 public:
  World(uint32_t slots, uint32_t slot_pages, uint32_t spare, uint32_t page_rows, uint64_t lag,
        uint32_t seed)
      : pages(slots, slot_pages, slots * slot_pages + spare, page_rows, lag),
        lag_(lag),
        random_(seed),
        live(slots),
        memory_(pages.total(), std::vector<Cell>(page_rows)) {}

  void step() {
    const auto slot = below(live.size());
    switch (below(9)) {
      case 0:
      case 1:
      case 2:
        return write(slot, live[slot].boundary(), 1 + below(below(4) ? 3 : room()));
      case 3:
        return write(slot, below(live[slot].boundary() + 1), below(4));
      case 4:
        return snapshot(slot);
      case 5:
      case 6:
        if (!capsules.empty()) restore(capsules[below(capsules.size())], slot);
        return;
      case 7:
        if (below(3)) return release();
        return load(below(room()));
      default:
        if (below(4)) return;
        pages.drop(slot, 0);
        live[slot] = {};
    }
  }

  void check() {
    std::vector<uint32_t> holders(pages.total());
    for (uint32_t slot = 0; slot < live.size(); ++slot) {
      const auto entries = pages.entries(slot);
      REQUIRE(pages.held(slot) >= pages.count(live[slot].boundary()));
      bool in_order = true;
      for (uint32_t i = 0; i < entries.size(); ++i) {
        in_order &= (entries[i] != PageTable::kNone) == (i < pages.held(slot));
        if (entries[i] != PageTable::kNone) ++holders.at(static_cast<std::size_t>(entries[i]));
      }
      REQUIRE(in_order);
      expect(live[slot], entries);
    }
    for (const Capsule& capsule : capsules) {
      for (const int32_t page : capsule.pages) ++holders.at(static_cast<std::size_t>(page));
      expect(capsule.rows, capsule.pages);
    }
    REQUIRE(pages.free() == std::count(holders.begin(), holders.end(), 0u));
    REQUIRE(pages.shared() ==
            std::count_if(holders.begin(), holders.end(), [](uint32_t n) { return n > 1; }));
  }

  void give_everything_back() {
    while (!capsules.empty()) release();
    for (uint32_t slot = 0; slot < live.size(); ++slot) pages.drop(slot, 0);
    REQUIRE(pages.free() == pages.total());
  }

  PageTable pages;
  uint64_t writes = 0, refusals = 0, shortages = 0, restores = 0;

 private:
  struct Cell {
    uint64_t now = 0, lagged = 0;
  };

  uint64_t below(uint64_t n) { return n == 0 ? 0 : random_() % n; }
  uint64_t room() const { return uint64_t{pages.slot_pages()} * pages.page_rows(); }
  Cell& cell(std::span<const int32_t> entries, uint64_t row) {
    const auto page = static_cast<std::size_t>(entries[row / pages.page_rows()]);
    return memory_.at(page)[row % pages.page_rows()];
  }
  void expect(const Rows& rows, std::span<const int32_t> entries) {
    bool same = true;
    for (uint64_t i = 0; i < rows.now.size(); ++i) same &= cell(entries, i).now == rows.now[i];
    for (uint64_t i = 0; i < rows.lagged.size(); ++i) {
      same &= cell(entries, i).lagged == rows.lagged[i];
    }
    REQUIRE(same);
  }
  uint64_t holders_of(int32_t page) const {
    uint64_t count = 0;
    for (uint32_t slot = 0; slot < live.size(); ++slot) {
      const auto entries = pages.entries(slot);
      count += static_cast<uint64_t>(std::count(entries.begin(), entries.end(), page));
    }
    for (const Capsule& capsule : capsules) {
      count += static_cast<uint64_t>(std::count(capsule.pages.begin(), capsule.pages.end(), page));
    }
    return count;
  }

  void write(std::size_t at, uint64_t first, uint64_t count) {
    const auto slot = static_cast<uint32_t>(at);
    Rows& rows = live[slot];
    const uint64_t end = std::min(first + count, room());
    const uint32_t held = pages.held(slot);
    const uint64_t first_lagged = first < lag_ ? 0 : first - lag_;
    PageTable::Change change;
    const Result result = pages.reserve(slot, first, end, change);
    CHECK(change.begin == held);
    if (result == Result::kHeld) {
      // Only rows that were there before can be held elsewhere, and some page must be.
      REQUIRE(first < rows.boundary());
      bool elsewhere = false;
      for (uint64_t i = first_lagged / pages.page_rows(); i < held; ++i) {
        elsewhere = elsewhere || holders_of(pages.entries(slot)[i]) > 1;
      }
      REQUIRE(elsewhere);
      ++refusals;
      return;
    }
    if (result == Result::kTooFew) {
      REQUIRE(pages.held(slot) == held);
      REQUIRE(pages.count(end) - held > pages.free());
      ++shortages;
      return;
    }
    REQUIRE(change.end == pages.held(slot));
    REQUIRE(pages.held(slot) == std::max(held, pages.count(end)));
    rows.now.resize(first);
    rows.lagged.resize(std::min<uint64_t>(rows.lagged.size(), first_lagged));
    for (uint64_t i = first; i < end; ++i) {
      rows.now.push_back(cell(pages.entries(slot), i).now = ++stamp_);
    }
    while (rows.lagged.size() + lag_ < end) {
      const uint64_t i = rows.lagged.size();
      rows.lagged.push_back(cell(pages.entries(slot), i).lagged = ++stamp_);
    }
    ++writes;
  }

  void snapshot(std::size_t at) {
    const auto slot = static_cast<uint32_t>(at);
    Capsule capsule{live[slot], std::vector<int32_t>(pages.count(live[slot].boundary()))};
    pages.share(slot, capsule.rows.boundary(), capsule.pages.data());
    capsules.push_back(std::move(capsule));
  }

  void restore(const Capsule& capsule, std::size_t at) {
    const auto slot = static_cast<uint32_t>(at);
    const uint64_t boundary = capsule.rows.boundary();
    // All whole pages, or fewer: then more rows are copied.
    const uint32_t whole = pages.full(boundary);
    const auto taken = static_cast<uint32_t>(below(4) ? whole : below(whole + 1));
    const uint32_t held = pages.held(slot);
    const Result result = pages.adopt(slot, std::span(capsule.pages).first(taken), boundary);
    if (result == Result::kTooFew) {
      REQUIRE(pages.held(slot) == held);
      ++shortages;
      return;
    }
    for (uint64_t i = uint64_t{taken} * pages.page_rows(); i < boundary; ++i) {
      Cell& to = cell(pages.entries(slot), i);
      const Cell& from = cell(capsule.pages, i);
      REQUIRE(&to != &from);
      to.now = from.now;
      if (i < capsule.rows.lagged.size()) to.lagged = from.lagged;
    }
    live[slot] = capsule.rows;
    ++restores;
  }

  // A capsule whose rows come from elsewhere.
  void load(uint64_t boundary) {
    Capsule capsule{{}, std::vector<int32_t>(pages.count(boundary))};
    if (pages.take(capsule.pages) != Result::kDone) return;
    for (uint64_t i = 0; i < boundary; ++i) {
      capsule.rows.now.push_back(cell(capsule.pages, i).now = ++stamp_);
      if (i + lag_ >= boundary) continue;
      capsule.rows.lagged.push_back(cell(capsule.pages, i).lagged = ++stamp_);
    }
    capsules.push_back(std::move(capsule));
  }

  void release() {
    if (capsules.empty()) return;
    const auto at = capsules.begin() + static_cast<std::ptrdiff_t>(below(capsules.size()));
    pages.release(at->pages);
    capsules.erase(at);
  }

  uint64_t lag_;
  std::mt19937 random_;

 public:
  std::vector<Rows> live;
  std::vector<Capsule> capsules;

 private:
  std::vector<std::vector<Cell>> memory_;
  uint64_t stamp_ = 0;
};

}  // namespace

TEST_CASE("whatever slots and capsules do, each finds its rows and no page is lost") {
  uint64_t writes = 0, refusals = 0, shortages = 0, restores = 0;
  uint32_t seed = 1;
  for (const uint32_t page_rows : {1, 2, 4, 16}) {
    for (const uint64_t lag : {0, 1, 3}) {
      for (const uint32_t spare : {0, 3, 40}) {
        CAPTURE(page_rows);
        CAPTURE(lag);
        CAPTURE(spare);
        World world(3, 5, spare, page_rows, lag, seed++);
        for (int i = 0; i < 1500; ++i) {
          world.step();
          world.check();
        }
        writes += world.writes;
        refusals += world.refusals;
        shortages += world.shortages;
        restores += world.restores;
        world.give_everything_back();
      }
    }
  }
  // All kinds of events came up.
  CHECK(writes > 5000);
  CHECK(refusals > 500);
  CHECK(shortages > 500);
  CHECK(restores > 2000);
}

TEST_CASE("a prefix is shared page by page, and only its rest is new") {
  PageTable pages(3, 8, 30, 64, 1);
  PageTable::Change change;
  REQUIRE(pages.reserve(0, 0, 256, change) == Result::kDone);
  CHECK(change.end == 4);
  CHECK(pages.full(256) == 3);  // row 255 of the lagging region is still to come
  CHECK(pages.full(257) == 4);
  CHECK(pages.full(0) == 0);
  std::vector<int32_t> prefix(4);
  pages.share(0, 256, prefix.data());
  CHECK(pages.shared() == 4);
  CHECK(pages.free() == 26);
  REQUIRE(pages.adopt(1, std::span(prefix).first(3), 256) == Result::kDone);
  CHECK(pages.free() == 25);
  CHECK(std::equal(prefix.begin(), prefix.begin() + 3, pages.entries(1).begin()));
  CHECK(pages.entries(1)[3] != prefix[3]);
  // Both go on; the next rows are their own.
  CHECK(pages.reserve(0, 256, 300, change) == Result::kDone);
  CHECK(pages.reserve(1, 256, 300, change) == Result::kDone);
  CHECK(pages.entries(0)[4] != pages.entries(1)[4]);
  // Neither may go back into what the other reads, until nobody else does.
  CHECK(pages.reserve(1, 100, 101, change) == Result::kHeld);
  CHECK(pages.reserve(0, 255, 256, change) == Result::kHeld);
  pages.release(prefix);
  CHECK(pages.reserve(0, 255, 256, change) == Result::kDone);
  CHECK(pages.reserve(0, 100, 101, change) == Result::kHeld);
  pages.drop(1, 0);
  CHECK(pages.reserve(0, 100, 101, change) == Result::kDone);
  CHECK(pages.shared() == 0);
}

TEST_CASE("what does not fit leaves everything as it was") {
  PageTable pages(2, 4, 5, 2, 0);
  PageTable::Change change;
  REQUIRE(pages.reserve(0, 0, 6, change) == Result::kDone);
  CHECK(pages.reserve(1, 0, 6, change) == Result::kTooFew);
  CHECK(pages.held(1) == 0);
  CHECK(pages.free() == 2);
  std::vector<int32_t> three(3);
  CHECK(pages.take(three) == Result::kTooFew);
  CHECK(pages.free() == 2);
  // The slot's own pages come back to it.
  CHECK(pages.adopt(0, {}, 8) == Result::kDone);
  CHECK(pages.free() == 1);
  CHECK(pages.adopt(1, {}, 4) == Result::kTooFew);
  CHECK(pages.free() == 1);
}
