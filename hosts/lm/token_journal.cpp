// SPDX-License-Identifier: Apache-2.0
// A prefill step joins the stretch before it exactly if that one ended at a multiple of the chunk:
// then the cut between them follows from the rule and need not be told.
#include "lm/token_journal.hpp"

#include <algorithm>
#include <frt/error.hpp>
#include <string>
#include <utility>

namespace frt::host {

using Json = nlohmann::ordered_json;

namespace {

constexpr const char* kOtherBuild = "other-build";

}  // namespace

bool is_cut(const FeedPath& path, uint64_t chunk, uint64_t boundary) {
  if (boundary == 0) return true;
  return std::any_of(path.begin(), path.end(), [&](const Stretch& stretch) {
    if (boundary <= stretch.begin || boundary > stretch.end) return false;
    return stretch.decode || boundary == stretch.end || boundary % chunk == 0;
  });
}

FeedPath path_until(const FeedPath& path, uint64_t boundary) {
  FeedPath part;
  for (Stretch stretch : path) {
    if (stretch.begin >= boundary) break;
    stretch.end = std::min(stretch.end, boundary);
    part.push_back(stretch);
  }
  return part;
}

bool on_cold_path(const FeedPath& path, uint64_t chunk) {
  return path.empty() ||
         (path.size() == 1 && !path[0].decode && !path[0].other_build && path[0].end % chunk == 0);
}

bool has_other_build(const FeedPath& path) {
  return std::any_of(path.begin(), path.end(),
                     [](const Stretch& stretch) { return stretch.other_build; });
}

void set_other_build(FeedPath& path) {
  for (Stretch& stretch : path) stretch.other_build = true;
}

void for_each_step(const FeedPath& path, uint64_t chunk,
                   const std::function<void(uint64_t begin, uint64_t end, bool decode)>& step) {
  for (const Stretch& stretch : path) {
    for (uint64_t at = stretch.begin; at < stretch.end;) {
      const uint64_t end = stretch.decode ? at + 1 : prefill_end(at, stretch.end, chunk);
      step(at, end, stretch.decode);
      at = end;
    }
  }
}

Json path_to_json(const FeedPath& path) {
  Json json = Json::array();
  for (const Stretch& stretch : path) {
    json.push_back({stretch.decode ? "decode" : "prefill", stretch.begin, stretch.end});
    if (stretch.other_build) json.back().push_back(kOtherBuild);
  }
  return json;
}

FeedPath path_from_json(const Json& json, uint64_t tokens) {
  const auto refuse = [](const std::string& text) {
    throw Error(FRT_ERR_FORMAT, "steps: " + text);
  };
  FeedPath path;
  uint64_t at = 0;
  if (!json.is_array()) refuse("expected a list");
  if (tokens > kMostTokens) {
    refuse(std::to_string(tokens) + " tokens; at most " + std::to_string(kMostTokens));
  }
  for (const Json& entry : json) {
    const std::string number = std::to_string(path.size());
    const bool shaped = entry.is_array() && (entry.size() == 3 || entry.size() == 4) &&
                        entry[0].is_string() && entry[1].is_number_unsigned() &&
                        entry[2].is_number_unsigned() &&
                        (entry.size() == 3 || entry[3] == kOtherBuild);
    if (!shaped || (entry[0] != "prefill" && entry[0] != "decode")) {
      refuse("stretch " + number +
             ": expected [\"prefill\" or \"decode\", begin, end] and nothing or \"other-build\"");
    }
    const Stretch stretch{entry[0] == "decode", entry[1].get<uint64_t>(), entry[2].get<uint64_t>(),
                          entry.size() == 4};
    if (stretch.begin != at || stretch.end <= at || stretch.end > tokens) {
      refuse("stretch " + number + ": expected one from " + std::to_string(at) + " on within " +
             std::to_string(tokens) + " tokens, found " + std::to_string(stretch.begin) + " to " +
             std::to_string(stretch.end));
    }
    at = stretch.end;
    path.push_back(stretch);
  }
  if (at != tokens) {
    refuse("they cover " + std::to_string(at) + " of " + std::to_string(tokens) + " tokens");
  }
  return path;
}

void TokenJournal::prefill(std::span<const int32_t> tokens) {
  if (tokens.empty()) return;
  const uint64_t begin = size();
  const uint64_t end = begin + tokens.size();
  if (prefill_end(begin, end, chunk_) != end) {
    throw Error(FRT_ERR_INTERNAL, "a prefill step of tokens " + std::to_string(begin) + " to " +
                                      std::to_string(end) + " crosses a multiple of " +
                                      std::to_string(chunk_));
  }
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  const bool joins =
      !path_.empty() && !path_.back().decode && !path_.back().other_build && begin % chunk_ == 0;
  if (joins) {
    path_.back().end = end;
  } else {
    path_.push_back({false, begin, end});
  }
}

void TokenJournal::decode(int32_t token) {
  const uint64_t begin = size();
  tokens_.push_back(token);
  if (!path_.empty() && path_.back().decode && !path_.back().other_build) {
    path_.back().end = begin + 1;
  } else {
    path_.push_back({true, begin, begin + 1});
  }
}

void TokenJournal::assign(std::vector<int32_t> tokens, FeedPath path) {
  tokens_ = std::move(tokens);
  path_ = std::move(path);
}

void TokenJournal::clear() noexcept {
  tokens_.clear();
  path_.clear();
}

void TokenJournal::reserve(uint64_t tokens) {
  tokens_.reserve(tokens);
  path_.reserve(path_.size() + 2);
}

uint64_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  const auto end = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<uint64_t>(end.first - a.begin());
}

}  // namespace frt::host
