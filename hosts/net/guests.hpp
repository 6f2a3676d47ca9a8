// SPDX-License-Identifier: Apache-2.0
// guests.hpp - which connection gives its place to a newcomer.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <cstdint>
#include <map>
#include <vector>

namespace frt::host {

// The oldest guest of the address with the most guests; null: there is none. `all` is in order of
// arrival; `is_guest` says which connections may be displaced. Connection has address().
template <class Connection, class IsGuest>
Connection* oldest_guest(const std::vector<Connection*>& all, const IsGuest& is_guest) {
  struct Guests {
    Connection* oldest = nullptr;
    uint32_t count = 0;
  };
  std::map<boost::asio::ip::address, Guests> addresses;
  const Guests* most = nullptr;
  for (Connection* connection : all) {
    if (!is_guest(*connection)) continue;
    Guests& guests = addresses[connection->address()];
    if (!guests.oldest) guests.oldest = connection;
    if (++guests.count > (most ? most->count : 0)) most = &guests;
  }
  return most ? most->oldest : nullptr;
}

}  // namespace frt::host
