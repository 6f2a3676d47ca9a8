// SPDX-License-Identifier: Apache-2.0
#include "robot/server/address.hpp"

#include <algorithm>

namespace frt::host {

boost::asio::ip::address counted_address(const boost::asio::ip::address& address) {
  namespace ip = boost::asio::ip;
  if (!address.is_v6() || address.is_loopback()) return address;
  const ip::address_v6 whole = address.to_v6();
  if (whole.is_v4_mapped()) return ip::make_address_v4(ip::v4_mapped, whole);
  ip::address_v6::bytes_type bytes = whole.to_bytes();
  std::fill(bytes.begin() + 8, bytes.end(), static_cast<unsigned char>(0));
  return ip::address_v6(bytes, whole.scope_id());
}

}  // namespace frt::host
