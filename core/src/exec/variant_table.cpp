// SPDX-License-Identifier: Apache-2.0
#include "exec/variant_table.hpp"

namespace frt::core {

VariantTable::~VariantTable() {
  while (newest_) remove(*newest_);
}

Variant* VariantTable::probe(frt_shape_key key) const noexcept {
  if (index_.empty()) return nullptr;
  const std::size_t mask = index_.size() - 1;
  for (std::size_t at = home(key);; at = (at + 1) & mask) {
    Variant* variant = index_[at];
    if (!variant || variant->key == key) return variant;
  }
}

void VariantTable::reserve_one() {
  if (2 * (std::size_t{size()} + 1) <= index_.size()) return;
  std::vector<Variant*> grown(index_.empty() ? 8 : 2 * index_.size());
  index_.swap(grown);
  shift_ = 64;
  for (std::size_t size = index_.size(); size > 1; size /= 2) --shift_;
  for (Variant* variant = oldest_; variant; variant = variant->newer) place(variant);
}

void VariantTable::place(Variant* variant) noexcept {
  const std::size_t mask = index_.size() - 1;
  std::size_t at = home(variant->key);
  while (index_[at]) at = (at + 1) & mask;
  index_[at] = variant;
}

Variant& VariantTable::insert(std::unique_ptr<Variant> owned) noexcept {
  Variant& variant = *owned.release();
  place(&variant);
  link_front(variant);
  size_.store(size() + 1, std::memory_order_relaxed);
  return variant;
}

std::unique_ptr<Variant> VariantTable::remove(Variant& variant) noexcept {
  const std::size_t mask = index_.size() - 1;
  std::size_t hole = home(variant.key);
  while (index_[hole] != &variant) hole = (hole + 1) & mask;
  // Shift back every follower whose home is not after the hole, so that probing never stops early.
  for (std::size_t at = (hole + 1) & mask; index_[at]; at = (at + 1) & mask) {
    const std::size_t distance = (at - home(index_[at]->key)) & mask;
    if (distance >= ((at - hole) & mask)) {
      index_[hole] = index_[at];
      hole = at;
    }
  }
  index_[hole] = nullptr;
  unlink(variant);
  size_.store(size() - 1, std::memory_order_relaxed);
  return std::unique_ptr<Variant>(&variant);
}

void VariantTable::move_to_front(Variant& variant) noexcept {
  unlink(variant);
  link_front(variant);
}

void VariantTable::link_front(Variant& variant) noexcept {
  variant.newer = nullptr;
  variant.older = newest_;
  if (newest_) newest_->newer = &variant;
  newest_ = &variant;
  if (!oldest_) oldest_ = &variant;
}

void VariantTable::unlink(Variant& variant) noexcept {
  (variant.newer ? variant.newer->older : newest_) = variant.older;
  (variant.older ? variant.older->newer : oldest_) = variant.newer;
}

}  // namespace frt::core
