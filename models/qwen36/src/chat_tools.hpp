// SPDX-License-Identifier: Apache-2.0
// chat_tools.hpp - the functions that a conversation declares, and the JSON of a value of theirs.
#pragma once

#include <frt/models/json.hpp>

#include <map>
#include <string>
#include <string_view>

namespace frt::qwen36 {

class Tools {
 public:
  // Of a parameter by name: its schema wants a text.
  using Parameters = std::map<std::string, bool, std::less<>>;

  // `tools`: as in frt/chat.h, or null. What has no name is left out.
  explicit Tools(const models::Json& tools);

  bool empty() const { return functions_.empty(); }
  // Any function, if none was declared: nobody says which there are.
  bool declares(std::string_view function) const {
    return functions_.empty() || functions_.contains(function);
  }
  // Those of a function; empty if it declares none.
  const Parameters& parameters(std::string_view function) const;

 private:
  std::map<std::string, Parameters, std::less<>> functions_;
};

// What the model wrote for a parameter, as JSON text: as it stands, digit for digit, where it is
// JSON and no text is wanted, else as a JSON string. A value loses one newline at each end.
std::string json_value(std::string_view text, bool wants_text);

}  // namespace frt::qwen36
