// SPDX-License-Identifier: Apache-2.0
#include "net/memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace frt::host {
namespace {

// A buffer grows by a quarter, and by this at least: mremap moves page tables, not bytes.
constexpr uint64_t kStep = uint64_t{64} << 10;
constexpr uint64_t kPage = 4096;

}  // namespace

bool MemoryBudget::take(uint64_t bytes) noexcept {
  uint64_t used = used_;
  do {
    if (used > limit_ || bytes > limit_ - used) return false;
  } while (!used_.compare_exchange_weak(used, used + bytes));
  return true;
}

MessageBuffer::MessageBuffer(MessageBuffer&& other) noexcept
    : budget_(other.budget_),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      capacity_(std::exchange(other.capacity_, 0)) {}

MessageBuffer& MessageBuffer::operator=(MessageBuffer&& other) noexcept {
  if (this != &other) {
    release();
    budget_ = other.budget_;
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, 0);
  }
  return *this;
}

bool MessageBuffer::reserve(uint64_t bytes, uint64_t most) noexcept {
  if (bytes <= capacity_) return true;
  const uint64_t ahead = std::min(capacity_ + std::max(capacity_ / 4, kStep), most);
  const uint64_t wanted = (std::max(bytes, ahead) + kPage - 1) / kPage * kPage;
  if (!budget_->take(wanted - capacity_)) return false;
  void* pages =
      data_ ? mremap(data_, capacity_, wanted, MREMAP_MAYMOVE)
            : mmap(nullptr, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) {
    budget_->give(wanted - capacity_);
    return false;
  }
  data_ = static_cast<char*>(pages);
  capacity_ = wanted;
  return true;
}

void MessageBuffer::append(const char* data, uint64_t bytes) noexcept {
  if (bytes > 0) std::memcpy(end(), data, bytes);
  size_ += bytes;
}

void MessageBuffer::release() noexcept {
  if (data_) munmap(data_, capacity_);
  budget_->give(capacity_);
  data_ = nullptr;
  size_ = capacity_ = 0;
}

}  // namespace frt::host
