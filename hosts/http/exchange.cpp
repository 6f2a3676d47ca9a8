// SPDX-License-Identifier: Apache-2.0
#include "http/exchange.hpp"

#include <boost/asio/post.hpp>
#include <utility>

#include "http/exchange_queue.hpp"

namespace frt::host {

// ---- queue ----

// The server's loop comes around by itself soon, if there is no memory for a wake-up.
void ExchangeQueue::wake() {
  try {
    boost::asio::post(*io_, [] {});
  } catch (const std::bad_alloc&) {
    return;
  }
}

void ExchangeQueue::push(std::shared_ptr<Exchange> exchange) {
  const std::lock_guard lock(mutex_);
  if (!io_) return;
  const bool first = ready_.exchanges.empty();
  ready_.exchanges.push_back(std::move(exchange));
  if (first) wake();
}

// Without memory for that, the client waits until one of them gives up.
void ExchangeQueue::push(std::vector<std::weak_ptr<HttpConnection>> Ready::*list,
                         std::weak_ptr<HttpConnection> connection) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (!io_) return;
    (ready_.*list).push_back(std::move(connection));
    wake();
  } catch (...) {
    return;
  }
}

void ExchangeQueue::push_abandoned(std::weak_ptr<HttpConnection> connection) noexcept {
  push(&Ready::abandoned, std::move(connection));
}

void ExchangeQueue::push_woken(std::weak_ptr<HttpConnection> connection) noexcept {
  push(&Ready::woken, std::move(connection));
}

void ExchangeQueue::close() noexcept {
  const std::lock_guard lock(mutex_);
  io_ = nullptr;
  ready_ = {};
}

ExchangeQueue::Ready ExchangeQueue::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(ready_, {});
}

// ---- exchange ----

Exchange::Exchange(std::shared_ptr<HttpRequest> request, std::weak_ptr<HttpConnection> connection,
                   std::shared_ptr<ExchangeQueue> queue, uint64_t body_bytes, uint64_t stream_limit)
    : request_(std::move(request)),
      connection_(std::move(connection)),
      queue_(std::move(queue)),
      body_bytes_(body_bytes),
      stream_limit_(stream_limit) {}

Exchange::~Exchange() {
  release_body();
  if (!over_ && !gone_) queue_->push_abandoned(connection_);
}

void Exchange::release_body() noexcept {
  queue_->memory.give(body_bytes_.exchange(0));
}

void Exchange::respond(HttpResponse response) {
  {
    const std::lock_guard lock(mutex_);
    if (gone_ || begun_) return;
    begun_ = over_ = true;
    next_.begun = next_.ended = next_.whole = true;
    next_.head = std::move(response);
  }
  changed();
}

void Exchange::begin(HttpResponse head) {
  {
    const std::lock_guard lock(mutex_);
    if (gone_ || begun_) return;
    begun_ = next_.begun = true;
    next_.head = std::move(head);
  }
  changed();
}

bool Exchange::write(std::string_view bytes) {
  bool broken = false;
  {
    const std::lock_guard lock(mutex_);
    if (gone_ || over_ || !begun_) return false;
    if (bytes.empty()) return true;
    waiting_ += bytes.size();
    broken = waiting_ > stream_limit_;
    if (broken) {
      next_.broken = over_ = true;
      next_.bytes.clear();
    } else {
      next_.bytes += bytes;
    }
  }
  changed();
  return !broken;
}

void Exchange::end() {
  {
    const std::lock_guard lock(mutex_);
    if (gone_ || over_ || !begun_) return;
    over_ = next_.ended = true;
  }
  changed();
}

bool Exchange::gone() const {
  const std::lock_guard lock(mutex_);
  return gone_;
}

void Exchange::on_gone(std::function<void()> function) {
  {
    const std::lock_guard lock(mutex_);
    if (!gone_) {
      on_gone_ = std::move(function);
      return;
    }
  }
  function();
}

void Exchange::on_idle(std::function<void()> function) {
  const std::lock_guard lock(mutex_);
  if (!gone_ && !over_) on_idle_ = std::move(function);
}

void Exchange::on_sent(std::function<void()> function) {
  const std::lock_guard lock(mutex_);
  if (!gone_ && !over_) on_sent_.swap(function);  // the old one goes without the lock
}

std::function<void()> Exchange::idle_function() {
  const std::lock_guard lock(mutex_);
  return over_ ? nullptr : on_idle_;
}

// One entry in the queue at a time: what is written meanwhile goes along.
void Exchange::changed() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(queued_, true)) return;
  }
  queue_->push(shared_from_this());
}

Exchange::Output Exchange::take() {
  const std::lock_guard lock(mutex_);
  queued_ = false;
  return std::exchange(next_, {});
}

void Exchange::sent(uint64_t bytes) {
  std::function<void()> function;
  {
    const std::lock_guard lock(mutex_);
    waiting_ -= bytes;
    if (bytes > 0 && waiting_ == 0 && !over_) function = on_sent_;
  }
  if (function) function();
}

void Exchange::leave() noexcept {
  std::function<void()> function, idle, sent;
  {
    const std::lock_guard lock(mutex_);
    if (gone_) return;
    gone_ = true;
    function.swap(on_gone_);
    idle.swap(on_idle_);
    sent.swap(on_sent_);
  }
  try {
    if (function) function();
  } catch (...) {
    return;  // the service's own trouble; the client is gone either way
  }
}

// Owners of the functions are often what they capture: a finished exchange lets go of them.
void Exchange::forget() noexcept {
  std::function<void()> gone, idle, sent;
  const std::lock_guard lock(mutex_);
  gone.swap(on_gone_);
  idle.swap(on_idle_);
  sent.swap(on_sent_);
}

}  // namespace frt::host
