// SPDX-License-Identifier: Apache-2.0
#include "option_cases.hpp"

#include <algorithm>
#include <cstdio>
#include <frt/error.hpp>
#include <string_view>

#include "broken_rule.hpp"

namespace frt::conformance {
namespace {

std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.17g", value);
  return text;
}

bool has_limits(const core::OptionSpec& option) {
  return option.minimum != 0 || option.maximum != 0;
}

// What no host hands over.
std::vector<std::string> forbidden_values(const core::OptionSpec& option) {
  std::vector<std::string> all;
  if (has_limits(option)) all = {number(option.minimum - 1), number(option.maximum + 1)};
  switch (option.type) {
    case FRT_CONFIG_BOOL:
      all.emplace_back("perhaps");
      break;
    case FRT_CONFIG_INT:
      all.insert(all.end(), {"many", "1.5", "9223372036854775808"});
      break;
    case FRT_CONFIG_SIZE:
      all.insert(all.end(), {"many", "-1", "1.5"});
      break;
    case FRT_CONFIG_FLOAT:
      all.insert(all.end(), {"many", "nan", "inf"});
      break;
    case FRT_CONFIG_ENUM:
      all.emplace_back("no such choice");
      break;
    default:
      break;
  }
  return all;
}

// What the schema allows and few people try.
std::vector<std::string> rare_values(const core::OptionSpec& option) {
  const bool limited = has_limits(option);
  switch (option.type) {
    case FRT_CONFIG_BOOL:
      return {"false", "true"};
    case FRT_CONFIG_INT:
      if (limited) return {number(option.minimum)};
      return {"-1", "-9223372036854775808", "9223372036854775807"};
    case FRT_CONFIG_FLOAT:
      if (limited) return {number(option.minimum)};
      return {"-1", "1e300"};
    case FRT_CONFIG_SIZE:
      if (limited) return {number(option.minimum)};
      return {"0", "9223372036854775807"};
    case FRT_CONFIG_ENUM:
      return option.choices;
    case FRT_CONFIG_STRING:
      return {"no such value"};
    case FRT_CONFIG_PATH:
      return {"/no such folder/no such file"};
    default:
      return {};
  }
}

void require_forbidden(const std::vector<core::OptionSpec>& schema,
                       const std::vector<Option>& given, const std::string& what,
                       const core::OptionSpec& option, const std::string& text) {
  const std::string where = "option " + option.key + " = " + text;
  std::string refusal;
  try {
    config_of(schema, with_options(given, {{option.key, text}}), what);
  } catch (const Error& error) {
    refusal = error.what();
  }
  if (refusal.empty()) {
    const bool ranged = option.type == FRT_CONFIG_INT || option.type == FRT_CONFIG_SIZE ||
                        option.type == FRT_CONFIG_FLOAT;
    fail(
        where + " is accepted" +
        (has_limits(option) ? ", outside the " + number(option.minimum) + " to " +
                                  number(option.maximum) + " that its schema declares"
                            : std::string()) +
        (ranged ? "" : "; limits hold for INT, SIZE and FLOAT alone (frt/config.h), and this is ") +
        (ranged ? "" : core::config_type_name(option.type)));
  }
  if (refusal.find(option.key) == std::string::npos) {
    fail(where + " is refused without the name of the option: " + refusal);
  }
}

}  // namespace

std::vector<Option> with_options(const std::vector<Option>& given,
                                 const std::vector<Option>& more) {
  std::vector<Option> options;
  for (const Option& one : given) {
    const bool changed = std::any_of(more.begin(), more.end(),
                                     [&](const Option& other) { return other.key == one.key; });
    if (!changed) options.push_back(one);
  }
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

void try_options(const std::vector<core::OptionSpec>& schema, const std::vector<Option>& given,
                 const std::string& what, const std::string& function, const MakeWith& make) {
  for (const core::OptionSpec& option : schema) {
    for (const std::string& text : forbidden_values(option)) {
      require_forbidden(schema, given, what, option, text);
    }
    for (const std::string& text : rare_values(option)) {
      const Creation made = make({{option.key, text}});
      if (made.status == FRT_OK) continue;
      const std::string where = "option " + option.key + " = " + text + ": `" + function + "` ";
      if (!has_words(made.error)) {
        fail(where + "returns " + status_name(made.status) +
             " without a message; say in frt_error what to change");
      }
      const std::string_view said = made.error.message;
      if (said.find(option.key) == std::string_view::npos &&
          said.find(text) == std::string_view::npos) {
        fail(where + "refuses with words that name neither the option nor the value: " +
             made.error.message);
      }
    }
  }
}

}  // namespace frt::conformance
