// SPDX-License-Identifier: Apache-2.0
// capsule_upload.hpp - the body of an import, on its way into a file: what has arrived waits here
// until a worker that may wait for a disk has written it, so an upload costs little memory, however
// long it is.
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "http/body_sink.hpp"
#include "http/workers.hpp"
#include "lm/capsules/transfer.hpp"

namespace frt::host {

// How many uploads go on: each has a file of its own on the disk. `most` in all, `most_of_owner` of
// a key; without keys everybody is one, and has all.  [any]
class UploadPlaces {
 public:
  UploadPlaces(std::size_t most, std::size_t most_of_owner)
      : most_(most), most_of_owner_(most_of_owner) {}

  // Null: there is none. This object outlives what is returned, which gives the place back.
  std::shared_ptr<void> take(const std::string& owner);

 private:
  void give(const std::string& owner) noexcept;

  const std::size_t most_, most_of_owner_;
  std::mutex mutex_;
  std::size_t taken_ = 0;
  std::map<std::string, std::size_t> of_owner_;
};

class CapsuleUpload : public Actor {
 public:
  // Asks whether the import may be, and makes its file; throws what is against it. On a worker.
  using Open = std::function<std::unique_ptr<IncomingCapsule>()>;

  CapsuleUpload(Workers& workers, Open open, std::shared_ptr<void> place);

  // ---- of the server's thread ----
  void start(std::function<void()> wake);
  // False: the queue is full; the caller waits for `wake`.
  bool put(std::string_view bytes);
  // Null: nothing has gone wrong.  [any]
  std::exception_ptr failure() const;
  // Nobody wants it any more: a worker removes the file.  [any]
  void abandon() noexcept;

  // ---- of a worker ----
  // The file with all that was put, or throws what has gone wrong. The caller drops it.
  std::unique_ptr<IncomingCapsule> complete();

 private:
  void work() override;
  void write_waiting();  // with file_mutex_

  const Open open_;
  const std::shared_ptr<void> place_;
  std::mutex file_mutex_;
  std::unique_ptr<IncomingCapsule> file_;
  mutable std::mutex mutex_;  // of the rest
  std::string waiting_;
  bool full_ = false, over_ = false;
  std::exception_ptr failure_;
  std::function<void()> wake_;
};

// An upload as the server sees it.
class UploadSink : public BodySink {
 public:
  // `answer`: what the client of a failed upload is told.
  using Answer = std::function<HttpResponse(const std::exception_ptr&)>;

  UploadSink(std::shared_ptr<CapsuleUpload> upload, uint64_t limit, Answer answer)
      : upload_(std::move(upload)), limit_(limit), answer_(std::move(answer)) {}
  ~UploadSink() override { upload_->abandon(); }

  const std::shared_ptr<CapsuleUpload>& upload() const noexcept { return upload_; }

  uint64_t limit() const noexcept override { return limit_; }
  void start(std::function<void()> wake) override { upload_->start(std::move(wake)); }
  bool put(std::string_view bytes) override { return upload_->put(bytes); }
  std::optional<HttpResponse> refusal() override;

 private:
  const std::shared_ptr<CapsuleUpload> upload_;
  const uint64_t limit_;
  const Answer answer_;
};

}  // namespace frt::host
