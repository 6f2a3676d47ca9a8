// SPDX-License-Identifier: Apache-2.0
// keys.hpp - who may ask: several keys, each with a name that owns the state made with it, and
// limits for each.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http/request.hpp"

namespace frt::host {

struct ApiKey {
  std::string name;  // [A-Za-z0-9][A-Za-z0-9_.-]{0,63}
  std::string secret;
};

// One key a line, "NAME SECRET"; empty lines and lines that begin with '#' are skipped. `source`
// names the text in errors, which never quote a secret. Throws FRT_ERR_FORMAT for a malformed line,
// a name or a secret that is there twice, a secret with fewer than 16 bytes, or no key at all.
std::vector<ApiKey> parse_keys(std::string_view text, const std::string& source);

// The secret that a request carries: "Authorization: Bearer SECRET" or "x-api-key: SECRET"; empty:
// none.  [any]
std::string_view sent_secret(const HttpRequest& request) noexcept;

struct KeyLimits {
  uint32_t max_requests = 0;  // of one key at a time; 0: no limit
  uint32_t per_minute = 0;    // of one key; 0: no limit
};

struct KeyCounts {
  uint64_t running = 0;  // now
  uint64_t requests = 0;
  uint64_t refused = 0;  // beyond the limits
};

// All members are [any].
class KeyRing {
 public:
  using Clock = std::chrono::steady_clock;

  // No keys: everybody may ask, as the owner "".
  KeyRing(std::vector<ApiKey> keys, KeyLimits limits);

  // The name of the key; nothing if it is none of ours. Takes the same time for every wrong secret
  // of a length.
  std::optional<std::string> owner(std::string_view secret) const;

  // Other keys and limits from now on. Running requests of a removed key continue, and count until
  // they leave; allowances of keys that stay are what they were.
  void replace(std::vector<ApiKey> keys, KeyLimits limits);

  // A request of `owner` begins; false: it has its requests, or made too many within a minute.
  bool enter(const std::string& owner, Clock::time_point now = Clock::now());
  void leave(const std::string& owner) noexcept;
  // Since the ring was made, by name; of keys that are no more while they have requests.
  std::map<std::string, KeyCounts> counts() const;

 private:
  struct Use {
    KeyCounts counts;
    double allowance = 0;  // requests that may begin now
    Clock::time_point updated;
  };

  Use& use_of(const std::string& owner, Clock::time_point now);
  bool is_known(const std::string& owner) const noexcept;

  mutable std::mutex mutex_;
  std::vector<ApiKey> keys_;
  KeyLimits limits_;
  std::map<std::string, Use> use_;  // of keys that are, or have requests
};

}  // namespace frt::host
