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
  return path.empty() || (path.size() == 1 && !path[0].decode && path[0].end % chunk == 0);
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
  for (const Json& entry : json) {
    if (!entry.is_array() || entry.size() != 3 || !entry[0].is_string() ||
        !entry[1].is_number_unsigned() || !entry[2].is_number_unsigned()) {
      refuse("expected [\"prefill\" or \"decode\", begin, end], found " + entry.dump());
    }
    const auto& kind = entry[0].get_ref<const std::string&>();
    const Stretch stretch{kind == "decode", entry[1].get<uint64_t>(), entry[2].get<uint64_t>()};
    if (!stretch.decode && kind != "prefill") refuse("unknown kind \"" + kind + "\"");
    if (stretch.begin != at || stretch.end <= at || stretch.end > tokens) {
      refuse("expected a stretch from " + std::to_string(at) + " on within " +
             std::to_string(tokens) + " tokens, found " + entry.dump());
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
  const bool joins = !path_.empty() && !path_.back().decode && begin % chunk_ == 0;
  if (joins) {
    path_.back().end = end;
  } else {
    path_.push_back({false, begin, end});
  }
}

void TokenJournal::decode(int32_t token) {
  const uint64_t begin = size();
  tokens_.push_back(token);
  if (!path_.empty() && path_.back().decode) {
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

uint64_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  const auto end = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<uint64_t>(end.first - a.begin());
}

}  // namespace frt::host
