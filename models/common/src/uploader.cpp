// SPDX-License-Identifier: Apache-2.0
#include <frt/models/uploader.hpp>

#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

namespace frt::models {
namespace {

constexpr std::size_t kChunksInFlight = 4;  // beside one per thread: what the link works on
constexpr std::uint64_t kPieceAlignment = 64;

}  // namespace

unsigned upload_threads(const UploadOptions& options) {
  constexpr unsigned kMost = 12;  // more only fight for memory bandwidth
  if (options.threads > 0) return options.threads;
  return std::clamp(std::thread::hardware_concurrency(), 1u, kMost);
}

Uploader::Uploader(const Context& context, const Stream& stream, UploadOptions options)
    : context_(context), stream_(stream), options_(std::move(options)) {
  const unsigned threads = upload_threads(options_);
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

void Uploader::add(frt_buffer target, std::uint64_t offset, std::span<const std::byte> source) {
  if (source.size() <= options_.chunk_bytes) {
    const auto copy = std::make_shared<std::vector<std::byte>>(source.begin(), source.end());
    return add(target, offset, source.size(), [copy](std::uint64_t at, std::span<std::byte> to) {
      std::memcpy(to.data(), copy->data() + at, to.size());
    });
  }
  add(target, offset, source.size(), [source](std::uint64_t at, std::span<std::byte> to) {
    std::memcpy(to.data(), source.data() + at, to.size());
  });
  try {  // read from where it lies, while the caller waits
    finish();
  } catch (...) {
    halt();
    throw;
  }
}

void Uploader::add(frt_buffer target, std::uint64_t offset, std::uint64_t bytes,
                   const ByteReader& reader) {
  for (std::uint64_t done = 0; done < bytes;) {
    if (!open_) open_ = std::make_unique<Plan>();
    Plan& plan = *open_;
    const std::uint64_t at = (plan.bytes + kPieceAlignment - 1) / kPieceAlignment * kPieceAlignment;
    if (at >= options_.chunk_bytes || plan.pieces.size() == FRT_COPY_BATCH_MAX) {
      close_plan();
      continue;
    }
    const std::uint64_t part = std::min(bytes - done, options_.chunk_bytes - at);
    plan.pieces.push_back({target, offset + done, part, at, reader, done});
    plan.bytes = at + part;
    done += part;
  }
  pump(false);
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
    piece.reader(piece.from, {chunk + piece.at, piece.bytes});
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
                      plan.chunk * options_.chunk_bytes + piece.at, piece.bytes});
    bytes += piece.bytes;
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
