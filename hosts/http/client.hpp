// SPDX-License-Identifier: Apache-2.0
// client.hpp - one GET from a server on this machine or near it: enough to ask ours what it serves.
#pragma once

#include <chrono>
#include <string>

namespace frt::host {

struct FetchedAnswer {
  int status = 0;
  std::string body;
};

// `base` is "http://HOST:PORT". `secret`: sent as a bearer token, unless it is empty. Throws
// FRT_ERR_INVALID_ARGUMENT for another `base`, FRT_ERR_IO if nobody answers within `patience`, or
// with more than 1 MiB.  [any]
FetchedAnswer http_get(const std::string& base, const std::string& path, const std::string& secret,
                       std::chrono::seconds patience = std::chrono::seconds(10));

}  // namespace frt::host
