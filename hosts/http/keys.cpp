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
    : keys_(std::move(keys)), limits_(limits) {}

void KeyRing::replace(std::vector<ApiKey> keys, KeyLimits limits) {
  const std::lock_guard lock(mutex_);
  keys_.swap(keys);
  limits_ = limits;
  std::erase_if(use_, [&](const auto& use) {
    return use.second.counts.running == 0 && !is_known(use.first);
  });
}

std::optional<std::string> KeyRing::owner(std::string_view secret) const {
  const std::lock_guard lock(mutex_);
  if (keys_.empty()) return "";
  const ApiKey* found = nullptr;
  for (const ApiKey& key : keys_) {  // all of them, whichever it is
    if (equal_secret(secret, key.secret)) found = &key;
  }
  if (!found) return std::nullopt;
  return found->name;
}

bool KeyRing::is_known(const std::string& owner) const noexcept {
  if (keys_.empty()) return owner.empty();
  return std::ranges::find(keys_, owner, &ApiKey::name) != keys_.end();
}

// A key that has made no request yet may make a minute's at once.
KeyRing::Use& KeyRing::use_of(const std::string& owner, Clock::time_point now) {
  const Use full{.counts = {}, .allowance = double(limits_.per_minute), .updated = now};
  return use_.try_emplace(owner, full).first->second;
}

bool KeyRing::enter(const std::string& owner, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  Use& use = use_of(owner, now);
  bool may = limits_.max_requests == 0 || use.counts.running < limits_.max_requests;
  if (may && limits_.per_minute > 0) {
    const double most = limits_.per_minute;
    const std::chrono::duration<double> passed = now - use.updated;
    use.allowance = std::min(most, use.allowance + passed.count() * most / 60);
    use.updated = now;
    may = use.allowance >= 1;
    if (may) use.allowance -= 1;
  }
  ++(may ? use.counts.requests : use.counts.refused);
  use.counts.running += may ? 1 : 0;
  return may;
}

void KeyRing::leave(const std::string& owner) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = use_.find(owner);
  if (found == use_.end() || found->second.counts.running == 0) return;
  if (--found->second.counts.running == 0 && !is_known(owner)) use_.erase(found);
}

std::map<std::string, KeyCounts> KeyRing::counts() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, KeyCounts> counts;
  for (const auto& [owner, use] : use_) counts.emplace(owner, use.counts);
  return counts;
}

}  // namespace frt::host
