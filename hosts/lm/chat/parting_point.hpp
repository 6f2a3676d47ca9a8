// SPDX-License-Identifier: Apache-2.0
// parting_point.hpp - where the next turn's prompt will part from this one.
//
// A format may leave earlier reasoning out, so that may be within the answer. The format itself is
// asked: with an invented answer and question behind the conversation, how much of the text stays?
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>

#include "lm/text_model.hpp"

namespace frt::host {

// How many of `ids` stay: the tokens of `prompt`, which is `messages` rendered with `tools` and
// `options`. 0: nobody knows, for the format cannot say the invented turn; the request is none the
// worse, and what it leaves is reused from another boundary.  [any]
uint64_t parting_point(const TextModel& model, nlohmann::ordered_json messages,
                       const nlohmann::ordered_json& tools, const nlohmann::ordered_json& options,
                       const ChatPrompt& prompt, std::span<const int32_t> ids);

}  // namespace frt::host
