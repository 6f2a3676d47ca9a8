// SPDX-License-Identifier: Apache-2.0
#include "http/file_stream.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <frt/error.hpp>
#include <frt/io/retry.hpp>
#include <new>
#include <string_view>
#include <utility>

namespace frt::host {
namespace {

constexpr uint64_t kPart = uint64_t{256} << 10;

}  // namespace

FileStream::FileStream(Workers& workers, std::shared_ptr<Exchange> exchange, io::Descriptor file,
                       uint64_t size)
    : Actor(workers),
      exchange_(std::move(exchange)),
      file_(std::move(file)),
      left_(size),
      part_(std::max<uint64_t>(1, std::min(kPart, exchange_->stream_limit()))) {}

void FileStream::start(const std::shared_ptr<Exchange>& exchange, HttpResponse head,
                       io::Descriptor file, Workers& workers) {
  struct stat status {};
  if (fstat(file.get(), &status) != 0 || status.st_size < 0) {
    throw Error(FRT_ERR_IO, "the size of a file to send is not known");
  }
  const auto size = static_cast<uint64_t>(status.st_size);
  const auto stream = std::make_shared<FileStream>(workers, exchange, std::move(file), size);
  head.length = size;
  exchange->begin(std::move(head));
  if (exchange->request().method == "HEAD" || size == 0) return exchange->end();
  exchange->on_sent([stream] { stream->wake(); });
  stream->wake();
}

// False: there is nothing more to send.
bool FileStream::send_part() {
  const uint64_t wanted = std::min<uint64_t>(part_.size(), left_);
  const ssize_t got = io::retried([&] { return read(file_.get(), part_.data(), wanted); });
  if (got <= 0) return false;
  left_ -= static_cast<uint64_t>(got);
  if (!exchange_->write({part_.data(), static_cast<std::size_t>(got)})) return false;
  if (left_ == 0) exchange_->end();
  return left_ > 0;
}

void FileStream::work() {
  if (!exchange_) return;
  bool more = false;
  try {
    more = send_part();
  } catch (const std::bad_alloc&) {
    more = false;  // as a file that cannot be read on
  }
  if (more) return;
  // The exchange holds this object, and goes with it if nothing else answers.
  exchange_->on_sent(nullptr);
  exchange_.reset();
}

}  // namespace frt::host
