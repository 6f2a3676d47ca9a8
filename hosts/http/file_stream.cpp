// SPDX-License-Identifier: Apache-2.0
#include "http/file_stream.hpp"

#include <unistd.h>

#include <algorithm>
#include <frt/io/retry.hpp>
#include <string_view>
#include <utility>

namespace frt::host {
namespace {

constexpr uint64_t kPart = uint64_t{256} << 10;

}  // namespace

FileStream::FileStream(std::shared_ptr<Exchange> exchange, io::Descriptor file,
                       std::shared_ptr<void> held)
    : exchange_(std::move(exchange)),
      file_(std::move(file)),
      held_(std::move(held)),
      part_(std::max<uint64_t>(1, std::min(kPart, exchange_->stream_limit()))) {}

void FileStream::start(const std::shared_ptr<Exchange>& exchange, HttpResponse head,
                       io::Descriptor file, Workers& workers, std::shared_ptr<void> held) {
  const auto stream = std::make_shared<FileStream>(exchange, std::move(file), std::move(held));
  exchange->begin(std::move(head));
  if (exchange->request().method == "HEAD") return exchange->end();
  exchange->on_sent([stream, &workers] { workers.post([stream] { stream->next(); }); });
  stream->next();
}

void FileStream::next() {
  const ssize_t got = io::retried([&] { return read(file_.get(), part_.data(), part_.size()); });
  if (got > 0 && exchange_->write({part_.data(), static_cast<std::size_t>(got)})) return;
  if (got == 0) exchange_->end();
  // The exchange holds this object, and goes with it if nothing else answers.
  exchange_->on_sent(nullptr);
  exchange_.reset();
}

}  // namespace frt::host
