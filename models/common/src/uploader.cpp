// SPDX-License-Identifier: Apache-2.0
#include <frt/models/uploader.hpp>

#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

namespace frt::models {
namespace {

constexpr unsigned kMostThreads = 12;       // more only fight for memory bandwidth
constexpr std::size_t kChunksInFlight = 4;  // beside one per thread: what the link works on
constexpr std::uint64_t kPieceAlignment = 64;

unsigned thread_count(unsigned wanted) {
  if (wanted > 0) return wanted;
  return std::clamp(std::thread::hardware_concurrency(), 1u, kMostThreads);
}

}  // namespace

Uploader::Uploader(const Context& context, const Stream& stream, UploadOptions options)
    : context_(context), stream_(stream), options_(std::move(options)) {
  const unsigned threads = thread_count(options_.threads);
  const std::size_t chunks = threads + kChunksInFlight;
  ring_ = context.alloc(FRT_SPACE_HOST_PINNED, chunks * options_.chunk_bytes, "weights.staging");
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
    events_.push_back(context.create_event());
    free_.push_back(chunk);
  }
  try {
    for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {
    if (threads_.empty()) throw;  // fewer are slower, that is all
  }
}

Uploader::~Uploader() {
  halt();
  stream_.table().stream_sync(stream_);
}

// Afterwards nobody reads a source any more.
void Uploader::halt() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Uploader::add(frt_buffer target, std::uint64_t offset, std::span<const std::byte> source,
                   bool own) {
  const bool copied = own && source.size() <= options_.chunk_bytes;
  const bool large = own && !copied;
  std::span<const std::byte> rest = source;
  while (!rest.empty()) {
    if (!open_) open_ = std::make_unique<Plan>();
    Plan& plan = *open_;
    const std::uint64_t at = (plan.bytes + kPieceAlignment - 1) / kPieceAlignment * kPieceAlignment;
    if (at >= options_.chunk_bytes || plan.pieces.size() == FRT_COPY_BATCH_MAX) {
      close_plan();
      continue;
    }
    const auto bytes = std::min<std::uint64_t>(rest.size(), options_.chunk_bytes - at);
    std::span<const std::byte> part = rest.first(bytes);
    if (copied) part = plan.owned.emplace_back(part.begin(), part.end());
    plan.pieces.push_back({target, offset, part, at, own});
    plan.bytes = at + bytes;
    offset += bytes;
    rest = rest.subspan(bytes);
  }
  if (!large) return pump(false);
  try {  // read from where it lies, while the caller waits
    finish();
  } catch (...) {
    halt();
    throw;
  }
}

void Uploader::close_plan() {
  if (!open_) return;
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(open_));
  }
  work_.notify_one();
}

// ---- the threads --------------------------------------------------------------------------

void Uploader::work() noexcept {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [this] { return stop_ || (!waiting_.empty() && !free_.empty()); });
    if (stop_) return;
    std::unique_ptr<Plan> plan = std::move(waiting_.front());
    waiting_.pop_front();
    plan->chunk = free_.back();
    free_.pop_back();
    ++filling_;
    lock.unlock();
    std::exception_ptr failure;
    try {
      fill(*plan);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    --filling_;
    if (failure) {
      failure_ = failure;
      stop_ = true;
      work_.notify_all();
    }
    filled_.push_back(std::move(plan));
    ready_.notify_one();
  }
}

void Uploader::fill(const Plan& plan) const {
  std::byte* chunk = ring_.pointer<std::byte>() + plan.chunk * options_.chunk_bytes;
  for (const Piece& piece : plan.pieces) {
    if (piece.own || !options_.read) {
      std::memcpy(chunk + piece.at, piece.source.data(), piece.source.size());
    } else {
      options_.read(piece.source, chunk + piece.at);
    }
  }
}

// ---- the caller ---------------------------------------------------------------------------

void Uploader::rethrow() {
  if (failure_) std::rethrow_exception(failure_);
}

// Chunks whose copies are done; the stream keeps their order.
void Uploader::take_back() {
  while (!in_flight_.empty() && events_[in_flight_.front()].query()) {
    {
      const std::lock_guard lock(mutex_);
      free_.push_back(in_flight_.front());
    }
    in_flight_.pop_front();
    work_.notify_one();
  }
}

void Uploader::submit(const Plan& plan) {
  std::vector<frt_copy> copies;
  copies.reserve(plan.pieces.size());
  std::uint64_t bytes = 0;
  for (const Piece& piece : plan.pieces) {
    copies.push_back({piece.target, piece.offset, ring_.handle(),
                      plan.chunk * options_.chunk_bytes + piece.at, piece.source.size()});
    bytes += piece.source.size();
  }
  Recorder(stream_).copy_batch(copies);
  events_[plan.chunk].record(stream_);
  in_flight_.push_back(plan.chunk);
  submitted_bytes_ += bytes;
  if (options_.progress) options_.progress(submitted_bytes_);
}

void Uploader::pump(bool all) {
  for (;;) {
    take_back();
    std::unique_ptr<Plan> plan;
    bool starved = false;
    {
      std::unique_lock lock(mutex_);
      const auto nothing_filled = [this] { return filled_.empty() && !failure_; };
      if (nothing_filled()) {
        const bool idle = waiting_.empty() && filling_ == 0;
        if (!all || idle) return;
        // Threads without a chunk wait for the link, the caller then does, too.
        starved = filling_ == 0 && free_.empty();
        if (!starved) ready_.wait(lock, [&] { return !nothing_filled(); });
      }
      rethrow();
      if (!starved) {
        plan = std::move(filled_.front());
        filled_.pop_front();
      }
    }
    if (starved) {
      events_[in_flight_.front()].sync();
    } else {
      submit(*plan);
    }
  }
}

void Uploader::finish() {
  close_plan();
  pump(true);
  stream_.sync();
  take_back();
}

}  // namespace frt::models
