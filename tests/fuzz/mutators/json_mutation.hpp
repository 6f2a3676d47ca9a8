// SPDX-License-Identifier: Apache-2.0
// json_mutation.hpp - changes JSON the way a hostile writer would: it stays JSON, so parsers get
// past the first line of defence.
#pragma once

#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

namespace frt::test {

template <class Json>
Json hostile_value(std::mt19937_64& random) {
  const std::vector<Json> values = {nullptr,
                                    true,
                                    false,
                                    0,
                                    1,
                                    -1,
                                    7,
                                    8,
                                    UINT64_MAX,
                                    UINT64_MAX - 7,
                                    INT64_MIN,
                                    uint64_t{1} << 32,
                                    (uint64_t{1} << 32) + 1,
                                    uint64_t{1} << 31,
                                    uint64_t{1} << 63,
                                    0.5,
                                    1e300,
                                    -0.0,
                                    "",
                                    "prefill",
                                    "decode",
                                    "\x01",
                                    std::string(40, '7'),
                                    Json::array(),
                                    Json::object(),
                                    Json::array({Json::array({Json::array()})})};
  return values[random() % values.size()];
}

// One change somewhere: a value replaced or nudged, a member or an entry removed, repeated or
// moved.
template <class Json>
void mutate(Json& json, std::mt19937_64& random) {
  Json* at = &json;
  Json* parent = nullptr;
  typename Json::iterator place;
  while (at->is_structured() && !at->empty() && (!parent || random() % 8 != 0)) {
    parent = at;
    place = std::next(at->begin(), static_cast<std::ptrdiff_t>(random() % at->size()));
    at = &*place;
  }
  if (!parent) return;
  switch (random() % 5) {
    case 0:
      parent->erase(place);
      return;
    case 1:
      if (parent->is_array()) parent->push_back(Json(*at));
      return;
    case 2:
      if (at->is_number_unsigned()) {
        *at = at->template get<uint64_t>() + random() % 3 - 1;
        return;
      }
      [[fallthrough]];
    case 3:
      *at =
          Json(*std::next(parent->begin(), static_cast<std::ptrdiff_t>(random() % parent->size())));
      return;
    default:
      *at = hostile_value<Json>(random);
  }
}

}  // namespace frt::test
