// SPDX-License-Identifier: Apache-2.0
// file_stream.hpp - a file as a streamed answer, read as fast as its client takes it: a part is
// read when the one before it was sent, so a slow client costs a buffer and no thread.
#pragma once

#include <frt/io/file.hpp>
#include <memory>
#include <vector>

#include "http/exchange.hpp"
#include "http/workers.hpp"

namespace frt::host {

class FileStream : public std::enable_shared_from_this<FileStream> {
 public:
  // `file` is open at its beginning; a HEAD gets nothing of it. `workers` outlive the exchange,
  // `held` lives until the answer is over. A file that cannot be read on ends the connection: its
  // client sees that the answer is not whole.  [any]
  static void start(const std::shared_ptr<Exchange>& exchange, HttpResponse head,
                    io::Descriptor file, Workers& workers, std::shared_ptr<void> held);

  // Use start().
  FileStream(std::shared_ptr<Exchange> exchange, io::Descriptor file, std::shared_ptr<void> held);

 private:
  void next();

  std::shared_ptr<Exchange> exchange_;
  const io::Descriptor file_;
  const std::shared_ptr<void> held_;
  std::vector<char> part_;
};

}  // namespace frt::host
