// SPDX-License-Identifier: Apache-2.0
#include <frt/lm/chat_options.hpp>

#include <array>
#include <frt/error.hpp>
#include <string>
#include <vector>

namespace frt::lm {
std::size_t leading_space(std::string_view text) {
  static constexpr std::array<std::string_view, 20> kWide = {
      "\u0085", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003",
      "\u2004", "\u2005", "\u2006", "\u2007", "\u2008", "\u2009", "\u200a",
      "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", " "};
  if (text.empty()) return 0;
  const auto byte = static_cast<unsigned char>(text[0]);
  if ((byte >= 0x09 && byte <= 0x0d) || (byte >= 0x1c && byte <= 0x1f)) return 1;
  for (const std::string_view space : kWide) {
    if (text.starts_with(space)) return space.size();
  }
  return 0;
}

void read_chat_options(const models::Json& options, ChatOptions& result,
                       std::span<const std::pair<std::string_view, bool*>> more) {
  if (options.is_null()) return;
  if (!options.is_object()) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "chat options must be an object");
  }
  std::vector<std::pair<std::string_view, bool*>> known = {
      {"add_generation_prompt", &result.add_generation_prompt},
      {"enable_thinking", &result.enable_thinking},
      {"preserve_thinking", &result.preserve_thinking}};
  known.insert(known.end(), more.begin(), more.end());
  known.emplace_back("allow_special_tokens", &result.allow_special_tokens);
  for (const auto& [key, value] : options.items()) {
    bool* target = nullptr;
    std::string names;
    for (const auto& [name, member] : known) {
      if (name == key) target = member;
      names += (names.empty() ? "" : ", ") + std::string(name);
    }
    if (!target) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, "unknown chat option '" + key + "'; known: " + names);
    }
    if (!value.is_boolean()) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, "chat option '" + key + "' must be true or false");
    }
    *target = value.get<bool>();
  }
}

std::string_view strip_left(std::string_view text) {
  while (const std::size_t length = leading_space(text)) text.remove_prefix(length);
  return text;
}

std::string_view strip_right(std::string_view text) {
  for (bool found = true; found && !text.empty();) {
    found = false;
    for (std::size_t length = 1; length <= 3 && length <= text.size(); ++length) {
      if (leading_space(text.substr(text.size() - length)) == length) {
        text.remove_suffix(length);
        found = true;
        break;
      }
    }
  }
  return text;
}

std::string_view strip(std::string_view text) {
  return strip_right(strip_left(text));
}

}  // namespace frt::lm
