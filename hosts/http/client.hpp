// SPDX-License-Identifier: Apache-2.0
// client.hpp - one GET from a server on this machine or near it: enough to ask ours what it serves.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

namespace frt::host {

struct FetchedAnswer {
  int status = 0;
  std::string body;
};

// `base` is "http://HOST:PORT" or "https://HOST:PORT"; of the latter the certificate must be
// HOST's, by an authority of this system or, if it is not empty, of the file `authorities` (PEM).
// `secret`: sent as a bearer token, unless it is empty. Throws FRT_ERR_INVALID_ARGUMENT for another
// `base`, FRT_ERR_IO if nobody answers within `patience`, with more than 1 MiB, or one whom the
// certificate does not prove, and what tls_client_context() throws.  [any]
FetchedAnswer http_get(const std::string& base, const std::string& path, const std::string& secret,
                       const std::filesystem::path& authorities = {},
                       std::chrono::seconds patience = std::chrono::seconds(10));

}  // namespace frt::host
