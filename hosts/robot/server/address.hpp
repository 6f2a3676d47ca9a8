// SPDX-License-Identifier: Apache-2.0
// address.hpp - who counts as one neighbour where places are shared out by address.
#pragma once

#include <boost/asio/ip/address.hpp>

namespace frt::host {

// An IPv4 address as it is, also where it came mapped into IPv6; of an IPv6 address the network of
// 64 bits, whose addresses one machine can use as it likes; loopback as it is.
boost::asio::ip::address counted_address(const boost::asio::ip::address& address);

}  // namespace frt::host
