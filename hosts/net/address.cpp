// SPDX-License-Identifier: Apache-2.0
#include "net/address.hpp"

#include <sys/un.h>

#include <algorithm>
#include <frt/error.hpp>

namespace frt::host {
namespace {

namespace ip = boost::asio::ip;

constexpr std::size_t kPathLimit = sizeof(sockaddr_un{}.sun_path) - 1;

ListenAddress unix_address(const std::string& path) {
  if (path.empty() || path.size() > kPathLimit || path.find('\0') != path.npos) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "listen = 'unix:" + path + "': the path has 1 to " +
                                              std::to_string(kPathLimit) + " bytes");
  }
  ListenAddress listen;
  listen.unix_path = path;
  return listen;
}

}  // namespace

ListenAddress parse_listen(const std::string& text, bool allow_unix) {
  if (allow_unix && text.starts_with("unix:")) return unix_address(text.substr(5));
  const std::size_t colon = text.rfind(':');
  unsigned long port = 65536;
  std::string host;
  if (colon != std::string::npos && colon + 1 < text.size()) {
    host = text.substr(0, colon);
    if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
    const std::string digits = text.substr(colon + 1);
    const bool number = digits.size() < 6 && digits.find_first_not_of("0123456789") == digits.npos;
    if (number) port = std::stoul(digits);
  }
  boost::system::error_code error;
  ListenAddress listen;
  listen.address = ip::make_address(host == "localhost" ? "127.0.0.1" : host, error);
  if (error || port > 65535) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                "listen = '" + text + "' is no address:port, e.g. 127.0.0.1:8000 or [::]:8000" +
                    (allow_unix ? ", and no unix:PATH" : ""));
  }
  listen.port = static_cast<uint16_t>(port);
  return listen;
}

ip::address counted_address(const ip::address& address) {
  if (!address.is_v6() || address.is_loopback()) return address;
  const ip::address_v6 whole = address.to_v6();
  if (whole.is_v4_mapped()) return ip::make_address_v4(ip::v4_mapped, whole);
  ip::address_v6::bytes_type bytes = whole.to_bytes();
  std::fill(bytes.begin() + 8, bytes.end(), static_cast<unsigned char>(0));
  return ip::address_v6(bytes, whole.scope_id());
}

}  // namespace frt::host
