// SPDX-License-Identifier: Apache-2.0
// final_messages.hpp - the last bytes that a connection sends when it is ended at once: the
// response to an unfinished handshake, or two frames. They are ready to be sent; nothing is
// allocated.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace frt::host {

inline constexpr std::string_view kDisplaced =
    "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n\r\n"
    "a newer connection needed the place before this one was a client (max_connections)\n";
inline constexpr std::string_view kTimedOut =
    "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n"
    "no complete request within handshake_timeout_ms\n";

// A text frame and a close frame of a server; `text` is cut to 125 bytes.
class FinalFrames {
 public:
  FinalFrames(std::string_view text, uint16_t code) {
    text = text.substr(0, 125);
    put(0x81);
    put(static_cast<unsigned char>(text.size()));
    std::memcpy(bytes_.data() + size_, text.data(), text.size());
    size_ += text.size();
    put(0x88);
    put(2);
    put(static_cast<unsigned char>(code >> 8));
    put(static_cast<unsigned char>(code & 0xff));
  }
  std::string_view bytes() const { return {bytes_.data(), size_}; }

 private:
  void put(unsigned char byte) { bytes_[size_++] = static_cast<char>(byte); }
  std::array<char, 160> bytes_{};
  std::size_t size_ = 0;
};

}  // namespace frt::host
