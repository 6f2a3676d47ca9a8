// SPDX-License-Identifier: Apache-2.0
// address.hpp - where a server listens, and who counts as one neighbour where places are shared out
// by address.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <cstdint>
#include <string>

namespace frt::host {

struct ListenAddress {
  boost::asio::ip::address address;
  uint16_t port = 0;      // 0: any that is free
  std::string unix_path;  // not empty: a UNIX socket, and the members above mean nothing
};

// Reads "127.0.0.1:8000", "[::]:8000", "localhost:8000" or, if `allow_unix`, "unix:/run/frt.sock".
// Throws FRT_ERR_INVALID_ARGUMENT for anything else. Binds nothing.  [any]
ListenAddress parse_listen(const std::string& text, bool allow_unix = false);

// An IPv4 address as it is, also where it came mapped into IPv6; of an IPv6 address the network of
// 64 bits, whose addresses one machine can use as it likes; loopback as it is.
boost::asio::ip::address counted_address(const boost::asio::ip::address& address);

}  // namespace frt::host
