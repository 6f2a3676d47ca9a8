// SPDX-License-Identifier: Apache-2.0
// frt/models/uploader.hpp - many host bytes into device memory that the host cannot reach, at the
// speed of the link.
//
// One thread copies 4 to 5 GB/s out of the page cache, the link takes 55 (an H200 machine, 16
// cores). A ring that outgrows the processor's cache halves what arrives, so chunks are few and the
// one that came back last is filled first. What is to be uploaded is cut into chunks, several
// threads fill pinned chunks of a ring, and the caller's thread, the only one that talks to the
// device, submits them and takes them back when an event says that they were read:
//
//   add() -> plans -> | threads fill | -> submitted, in flight -> free again
//
// Small pieces share a chunk and one submission; large ones go over as many chunks as they need.
// add() of a reader never waits; nothing is guaranteed to have arrived before finish().
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <frt/exec.hpp>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

namespace frt::models {

// Writes the bytes of a source from `at` on to `target`, on any thread; throws to stop the upload.
using ByteReader = std::function<void(std::uint64_t at, std::span<std::byte> target)>;

struct UploadOptions {
  unsigned threads = 0;                                // 0: by the number of cores
  std::uint64_t chunk_bytes = std::uint64_t{4} << 20;  // multiple of 256
  // Told after each submission, on the caller's thread, how many bytes were submitted so far;
  // throws to stop the upload.
  std::function<void(std::uint64_t bytes)> progress;
};

// How many threads `options` means.  [any]
unsigned upload_threads(const UploadOptions& options);

class Uploader {
 public:
  Uploader(const Context& context, const Stream& stream, UploadOptions options);  // [setup]
  // Stops and waits for what is in flight; the rest is dropped.
  ~Uploader();
  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;

  // `source` to target[offset ..]; it is read before the call returns.  [setup]
  void add(frt_buffer target, std::uint64_t offset, std::span<const std::byte> source);
  // `bytes` bytes of `reader` to target[offset ..], any time before finish() returns.  [setup]
  void add(frt_buffer target, std::uint64_t offset, std::uint64_t bytes, const ByteReader& reader);

  // Waits until everything has arrived. Throws what a reader threw.  [setup]
  void finish();

 private:
  struct Piece {
    frt_buffer target;
    std::uint64_t offset;
    std::uint64_t bytes;
    std::uint64_t at;  // in the chunk
    ByteReader reader;
    std::uint64_t from;  // of the reader
  };
  // What one chunk will hold.
  struct Plan {
    std::vector<Piece> pieces;
    std::uint64_t bytes = 0;
    std::size_t chunk = 0;  // of the ring
  };

  void close_plan();
  void halt() noexcept;
  void work() noexcept;
  void fill(const Plan& plan) const;
  void submit(const Plan& plan);
  void take_back();
  // Submits what is filled; `all`: until nothing is left.
  void pump(bool all);
  void rethrow();

  Context context_;
  const Stream& stream_;
  UploadOptions options_;
  Buffer ring_;
  std::vector<Event> events_;  // of each chunk
  std::unique_ptr<Plan> open_;
  std::uint64_t submitted_bytes_ = 0;
  std::deque<std::size_t> in_flight_;  // chunks, in stream order

  std::mutex mutex_;
  std::condition_variable work_;               // for the threads
  std::condition_variable ready_;              // for the caller
  std::deque<std::unique_ptr<Plan>> waiting_;  // closed
  std::deque<std::unique_ptr<Plan>> filled_;   // to be submitted
  std::vector<std::size_t> free_;              // chunks
  std::size_t filling_ = 0;                    // plans in the hands of threads
  std::exception_ptr failure_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace frt::models
