// SPDX-License-Identifier: Apache-2.0
// file_stream.hpp - a file as an answer, read as fast as its client takes it: a part is read when
// the one before it was sent, so a slow client costs a buffer and no thread.
#pragma once

#include <frt/io/file.hpp>
#include <memory>
#include <vector>

#include "http/exchange.hpp"
#include "http/workers.hpp"

namespace frt::host {

class FileStream : public Actor {
 public:
  // `file` is open at its beginning; its size is the answer's length, and a HEAD gets nothing else
  // of it. `workers` outlive the exchange. A file that cannot be read on, or has become shorter,
  // ends the connection: its client sees that the answer is not whole. Throws FRT_ERR_IO.  [any]
  static void start(const std::shared_ptr<Exchange>& exchange, HttpResponse head,
                    io::Descriptor file, Workers& workers);

  // Use start().
  FileStream(Workers& workers, std::shared_ptr<Exchange> exchange, io::Descriptor file,
             uint64_t size);

 private:
  void work() override;
  bool send_part();

  std::shared_ptr<Exchange> exchange_;
  const io::Descriptor file_;
  uint64_t left_;  // bytes to read
  std::vector<char> part_;
};

}  // namespace frt::host
