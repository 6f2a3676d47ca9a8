// SPDX-License-Identifier: Apache-2.0
#include "http/lm/capsule_upload.hpp"

#include <utility>

namespace frt::host {
namespace {

// What waits for the disk at most, and as much is being written.
constexpr std::size_t kPart = std::size_t{256} << 10;

}  // namespace

// ---- places ----

std::shared_ptr<void> UploadPlaces::take(const std::string& owner) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = of_owner_.find(owner);
    const std::size_t before = found == of_owner_.end() ? 0 : found->second;
    if (taken_ >= most_ || before >= (owner.empty() ? most_ : most_of_owner_)) return nullptr;
    of_owner_[owner] = before + 1;
    ++taken_;
  }
  return {this, [owner](UploadPlaces* places) { places->give(owner); }};
}

void UploadPlaces::give(const std::string& owner) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = of_owner_.find(owner);
  if (found == of_owner_.end()) return;
  --taken_;
  if (--found->second == 0) of_owner_.erase(found);
}

// ---- upload ----

CapsuleUpload::CapsuleUpload(Workers& workers, Open open, std::shared_ptr<void> place)
    : Actor(workers), open_(std::move(open)), place_(std::move(place)) {}

void CapsuleUpload::start(std::function<void()> wake) {
  const std::lock_guard lock(mutex_);
  wake_ = std::move(wake);
}

bool CapsuleUpload::put(std::string_view bytes) {
  bool full = false;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return false;  // and it was woken
    waiting_ += bytes;
    full = full_ = waiting_.size() >= kPart;
  }
  wake();
  return !full;
}

std::exception_ptr CapsuleUpload::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void CapsuleUpload::abandon() noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(over_, true)) return;
    wake_ = nullptr;
  }
  wake();
}

void CapsuleUpload::work() {
  const std::lock_guard file_lock(file_mutex_);
  bool over = false;
  {
    const std::lock_guard lock(mutex_);
    over = over_;
  }
  if (over) return file_.reset();
  write_waiting();
}

std::unique_ptr<IncomingCapsule> CapsuleUpload::complete() {
  const std::lock_guard file_lock(file_mutex_);
  write_waiting();
  const std::lock_guard lock(mutex_);
  over_ = true;
  if (failure_) {
    file_.reset();
    std::rethrow_exception(failure_);
  }
  return std::move(file_);
}

void CapsuleUpload::write_waiting() {
  std::string part;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    part.swap(waiting_);
  }
  std::exception_ptr failure;
  try {
    if (!file_) file_ = open_();
    file_->write(part);
  } catch (...) {
    failure = std::current_exception();
  }
  std::function<void()> wake;
  {
    const std::lock_guard lock(mutex_);
    failure_ = failure;
    const bool told = std::exchange(full_, false) || failure;
    if (told) wake = wake_;
  }
  if (wake) wake();
}

// ---- sink ----

std::optional<HttpResponse> UploadSink::refusal() {
  const std::exception_ptr failure = upload_->failure();
  if (!failure) return std::nullopt;
  return answer_(failure);
}

}  // namespace frt::host
