// SPDX-License-Identifier: Apache-2.0
// The bookkeeping of row blocks against a memory that remembers every write: whatever slots and
// capsules do, each of them finds the rows it wrote or took over, and no block is lost.
#include "capsule/row_blocks.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

using frt::core::RowBlocks;
using Result = RowBlocks::Result;

namespace {

// What a reader expects: a stamp for every row, of a region without lag and of one with.
struct Rows {
  std::vector<uint64_t> now, lagged;
  uint64_t boundary() const { return now.size(); }
};

struct Capsule {
  Rows rows;
  std::vector<int32_t> blocks;
};

class World {
 public:
  World(uint32_t slots, uint32_t slot_blocks, uint32_t spare, uint32_t block_rows, uint64_t lag,
        uint32_t seed)
      : blocks(slots, slot_blocks, slots * slot_blocks + spare, block_rows, lag),
        lag_(lag),
        random_(seed),
        live(slots),
        memory_(blocks.total(), std::vector<Cell>(block_rows)) {}

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
        blocks.drop(slot, 0);
        live[slot] = {};
    }
  }

  void check() {
    std::vector<uint32_t> holders(blocks.total());
    for (uint32_t slot = 0; slot < live.size(); ++slot) {
      const auto entries = blocks.entries(slot);
      REQUIRE(blocks.held(slot) >= blocks.count(live[slot].boundary()));
      bool in_order = true;
      for (uint32_t i = 0; i < entries.size(); ++i) {
        in_order &= (entries[i] != RowBlocks::kNone) == (i < blocks.held(slot));
        if (entries[i] != RowBlocks::kNone) ++holders.at(static_cast<std::size_t>(entries[i]));
      }
      REQUIRE(in_order);
      expect(live[slot], entries);
    }
    for (const Capsule& capsule : capsules) {
      for (const int32_t block : capsule.blocks) ++holders.at(static_cast<std::size_t>(block));
      expect(capsule.rows, capsule.blocks);
    }
    REQUIRE(blocks.free() == std::count(holders.begin(), holders.end(), 0u));
    REQUIRE(blocks.shared() ==
            std::count_if(holders.begin(), holders.end(), [](uint32_t n) { return n > 1; }));
  }

  void give_everything_back() {
    while (!capsules.empty()) release();
    for (uint32_t slot = 0; slot < live.size(); ++slot) blocks.drop(slot, 0);
    REQUIRE(blocks.free() == blocks.total());
  }

  RowBlocks blocks;
  uint64_t writes = 0, refusals = 0, shortages = 0, restores = 0;

 private:
  struct Cell {
    uint64_t now = 0, lagged = 0;
  };

  uint64_t below(uint64_t n) { return n == 0 ? 0 : random_() % n; }
  uint64_t room() const { return uint64_t{blocks.slot_blocks()} * blocks.block_rows(); }
  Cell& cell(std::span<const int32_t> entries, uint64_t row) {
    const auto block = static_cast<std::size_t>(entries[row / blocks.block_rows()]);
    return memory_.at(block)[row % blocks.block_rows()];
  }
  void expect(const Rows& rows, std::span<const int32_t> entries) {
    bool same = true;
    for (uint64_t i = 0; i < rows.now.size(); ++i) same &= cell(entries, i).now == rows.now[i];
    for (uint64_t i = 0; i < rows.lagged.size(); ++i) {
      same &= cell(entries, i).lagged == rows.lagged[i];
    }
    REQUIRE(same);
  }
  uint64_t holders_of(int32_t block) const {
    uint64_t count = 0;
    for (uint32_t slot = 0; slot < live.size(); ++slot) {
      const auto entries = blocks.entries(slot);
      count += static_cast<uint64_t>(std::count(entries.begin(), entries.end(), block));
    }
    for (const Capsule& capsule : capsules) {
      count +=
          static_cast<uint64_t>(std::count(capsule.blocks.begin(), capsule.blocks.end(), block));
    }
    return count;
  }

  void write(std::size_t at, uint64_t first, uint64_t count) {
    const auto slot = static_cast<uint32_t>(at);
    Rows& rows = live[slot];
    const uint64_t end = std::min(first + count, room());
    const uint32_t held = blocks.held(slot);
    const uint64_t first_lagged = first < lag_ ? 0 : first - lag_;
    RowBlocks::Change change;
    const Result result = blocks.reserve(slot, first, end, change);
    CHECK(change.begin == held);
    if (result == Result::kHeld) {
      // Only rows that were there before can be held elsewhere, and some block must be.
      REQUIRE(first < rows.boundary());
      bool elsewhere = false;
      for (uint64_t i = first_lagged / blocks.block_rows(); i < held; ++i) {
        elsewhere = elsewhere || holders_of(blocks.entries(slot)[i]) > 1;
      }
      REQUIRE(elsewhere);
      ++refusals;
      return;
    }
    if (result == Result::kTooFew) {
      REQUIRE(blocks.held(slot) == held);
      REQUIRE(blocks.count(end) - held > blocks.free());
      ++shortages;
      return;
    }
    REQUIRE(change.end == blocks.held(slot));
    REQUIRE(blocks.held(slot) == std::max(held, blocks.count(end)));
    rows.now.resize(first);
    rows.lagged.resize(std::min<uint64_t>(rows.lagged.size(), first_lagged));
    for (uint64_t i = first; i < end; ++i) {
      rows.now.push_back(cell(blocks.entries(slot), i).now = ++stamp_);
    }
    while (rows.lagged.size() + lag_ < end) {
      const uint64_t i = rows.lagged.size();
      rows.lagged.push_back(cell(blocks.entries(slot), i).lagged = ++stamp_);
    }
    ++writes;
  }

  void snapshot(std::size_t at) {
    const auto slot = static_cast<uint32_t>(at);
    Capsule capsule{live[slot], std::vector<int32_t>(blocks.count(live[slot].boundary()))};
    blocks.share(slot, capsule.rows.boundary(), capsule.blocks.data());
    capsules.push_back(std::move(capsule));
  }

  void restore(const Capsule& capsule, std::size_t at) {
    const auto slot = static_cast<uint32_t>(at);
    const uint64_t boundary = capsule.rows.boundary();
    // All whole blocks, or fewer: then more rows are copied.
    const uint32_t whole = blocks.whole(boundary);
    const auto taken = static_cast<uint32_t>(below(4) ? whole : below(whole + 1));
    const uint32_t held = blocks.held(slot);
    const Result result = blocks.adopt(slot, std::span(capsule.blocks).first(taken), boundary);
    if (result == Result::kTooFew) {
      REQUIRE(blocks.held(slot) == held);
      ++shortages;
      return;
    }
    for (uint64_t i = uint64_t{taken} * blocks.block_rows(); i < boundary; ++i) {
      Cell& to = cell(blocks.entries(slot), i);
      const Cell& from = cell(capsule.blocks, i);
      REQUIRE(&to != &from);
      to.now = from.now;
      if (i < capsule.rows.lagged.size()) to.lagged = from.lagged;
    }
    live[slot] = capsule.rows;
    ++restores;
  }

  // A capsule whose rows come from elsewhere.
  void load(uint64_t boundary) {
    Capsule capsule{{}, std::vector<int32_t>(blocks.count(boundary))};
    if (!blocks.take(capsule.blocks)) return;
    for (uint64_t i = 0; i < boundary; ++i) {
      capsule.rows.now.push_back(cell(capsule.blocks, i).now = ++stamp_);
      if (i + lag_ >= boundary) continue;
      capsule.rows.lagged.push_back(cell(capsule.blocks, i).lagged = ++stamp_);
    }
    capsules.push_back(std::move(capsule));
  }

  void release() {
    if (capsules.empty()) return;
    const auto at = capsules.begin() + static_cast<std::ptrdiff_t>(below(capsules.size()));
    blocks.release(at->blocks);
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

TEST_CASE("whatever slots and capsules do, each finds its rows and no block is lost") {
  uint64_t writes = 0, refusals = 0, shortages = 0, restores = 0;
  uint32_t seed = 1;
  for (const uint32_t block_rows : {1, 2, 4, 16}) {
    for (const uint64_t lag : {0, 1, 3}) {
      for (const uint32_t spare : {0, 3, 40}) {
        CAPTURE(block_rows);
        CAPTURE(lag);
        CAPTURE(spare);
        World world(3, 5, spare, block_rows, lag, seed++);
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

TEST_CASE("a prefix is shared block by block, and only its rest is new") {
  RowBlocks blocks(3, 8, 30, 64, 1);
  RowBlocks::Change change;
  REQUIRE(blocks.reserve(0, 0, 256, change) == Result::kDone);
  CHECK(change.end == 4);
  CHECK(blocks.whole(256) == 3);  // row 255 of the lagging region is still to come
  CHECK(blocks.whole(257) == 4);
  CHECK(blocks.whole(0) == 0);
  std::vector<int32_t> prefix(4);
  blocks.share(0, 256, prefix.data());
  CHECK(blocks.shared() == 4);
  CHECK(blocks.free() == 26);
  REQUIRE(blocks.adopt(1, std::span(prefix).first(3), 256) == Result::kDone);
  CHECK(blocks.free() == 25);
  CHECK(std::equal(prefix.begin(), prefix.begin() + 3, blocks.entries(1).begin()));
  CHECK(blocks.entries(1)[3] != prefix[3]);
  // Both go on; the next rows are their own.
  CHECK(blocks.reserve(0, 256, 300, change) == Result::kDone);
  CHECK(blocks.reserve(1, 256, 300, change) == Result::kDone);
  CHECK(blocks.entries(0)[4] != blocks.entries(1)[4]);
  // Neither may go back into what the other reads, until nobody else does.
  CHECK(blocks.reserve(1, 100, 101, change) == Result::kHeld);
  CHECK(blocks.reserve(0, 255, 256, change) == Result::kHeld);
  blocks.release(prefix);
  CHECK(blocks.reserve(0, 255, 256, change) == Result::kDone);
  CHECK(blocks.reserve(0, 100, 101, change) == Result::kHeld);
  blocks.drop(1, 0);
  CHECK(blocks.reserve(0, 100, 101, change) == Result::kDone);
  CHECK(blocks.shared() == 0);
}

TEST_CASE("what does not fit leaves everything as it was") {
  RowBlocks blocks(2, 4, 5, 2, 0);
  RowBlocks::Change change;
  REQUIRE(blocks.reserve(0, 0, 6, change) == Result::kDone);
  CHECK(blocks.reserve(1, 0, 6, change) == Result::kTooFew);
  CHECK(blocks.held(1) == 0);
  CHECK(blocks.free() == 2);
  std::vector<int32_t> three(3);
  CHECK_FALSE(blocks.take(three));
  CHECK(blocks.free() == 2);
  // The slot's own blocks come back to it.
  CHECK(blocks.adopt(0, {}, 8) == Result::kDone);
  CHECK(blocks.free() == 1);
  CHECK(blocks.adopt(1, {}, 4) == Result::kTooFew);
  CHECK(blocks.free() == 1);
}
