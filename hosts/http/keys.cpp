// SPDX-License-Identifier: Apache-2.0
#include "http/keys.hpp"

#include <algorithm>
#include <cctype>
#include <frt/error.hpp>
#include <utility>

#include "net/secret.hpp"

namespace frt::host {
namespace {

constexpr std::size_t kLeastSecret = 16, kMostName = 64;

bool is_name(std::string_view text) {
  if (text.empty() || text.size() > kMostName) return false;
  const auto good = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-';
  };
  return std::isalnum(static_cast<unsigned char>(text.front())) != 0 &&
         std::ranges::all_of(text, good);
}

bool is_secret(std::string_view text) {
  return text.size() >= kLeastSecret &&
         std::ranges::all_of(text, [](unsigned char c) { return c > ' ' && c < 0x7f; });
}

}  // namespace

std::vector<ApiKey> parse_keys(std::string_view text, const std::string& source) {
  std::vector<ApiKey> keys;
  std::size_t number = 0;
  const auto fail = [&](const std::string& problem) {
    throw Error(FRT_ERR_FORMAT, source + ":" + std::to_string(number) + ": " + problem);
  };
  while (!text.empty()) {
    ++number;
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text = end == text.npos ? std::string_view() : text.substr(end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.front() == '#') continue;
    const std::size_t space = line.find(' ');
    const std::string_view name = line.substr(0, space);
    const std::string_view secret =
        space == line.npos ? std::string_view() : line.substr(space + 1);
    if (!is_name(name)) fail("a line is 'NAME SECRET', NAME of letters, digits, '_', '.' and '-'");
    if (!is_secret(secret)) {
      fail("the secret has at least " + std::to_string(kLeastSecret) +
           " printable characters without spaces");
    }
    for (const ApiKey& key : keys) {
      if (key.name == name) fail("the name is there twice");
      if (key.secret == secret) fail("the secret is there twice; give each name its own");
    }
    keys.push_back({std::string(name), std::string(secret)});
  }
  if (keys.empty()) {
    throw Error(FRT_ERR_FORMAT, source + " holds no key; write lines 'NAME SECRET'");
  }
  return keys;
}

std::string_view sent_secret(const HttpRequest& request) noexcept {
  constexpr std::string_view kBearer = "Bearer ";
  if (const std::string* value = request.header("authorization")) {
    const std::string_view text = *value;
    const auto equal = [](char a, char b) {
      return std::tolower(static_cast<unsigned char>(a)) ==
             std::tolower(static_cast<unsigned char>(b));
    };
    if (text.size() > kBearer.size() &&
        std::ranges::equal(text.substr(0, kBearer.size()), kBearer, equal)) {
      return text.substr(kBearer.size());
    }
  }
  if (const std::string* value = request.header("x-api-key")) return *value;
  return {};
}

KeyRing::KeyRing(std::vector<ApiKey> keys, KeyLimits limits)
    : keys_(std::move(keys)), limits_(limits) {
  const Use full{.allowance = static_cast<double>(limits_.per_minute), .updated = Clock::now()};
  use_.emplace("", full);
  for (const ApiKey& key : keys_) use_.emplace(key.name, full);
}

std::optional<std::string> KeyRing::owner(std::string_view secret) const {
  if (keys_.empty()) return "";
  const ApiKey* found = nullptr;
  for (const ApiKey& key : keys_) {  // all of them, whichever it is
    if (equal_secret(secret, key.secret)) found = &key;
  }
  if (!found) return std::nullopt;
  return found->name;
}

bool KeyRing::enter(const std::string& owner, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  Use& use = use_.at(owner);
  if (limits_.max_requests > 0 && use.running >= limits_.max_requests) return false;
  if (limits_.per_minute > 0) {
    const double most = limits_.per_minute;
    const std::chrono::duration<double> passed = now - use.updated;
    use.allowance = std::min(most, use.allowance + passed.count() * most / 60);
    use.updated = now;
    if (use.allowance < 1) return false;
    use.allowance -= 1;
  }
  ++use.running;
  return true;
}

void KeyRing::leave(const std::string& owner) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = use_.find(owner);
  if (found != use_.end() && found->second.running > 0) --found->second.running;
}

}  // namespace frt::host
