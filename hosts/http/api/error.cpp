// SPDX-License-Identifier: Apache-2.0
#include "http/api/error.hpp"

#include <utility>

#include "http/api/wire/json_line.hpp"

namespace frt::host {

namespace {

struct KindWords {
  int status;
  const char* openai_type;
  const char* openai_code;  // null: none
  const char* anthropic_type;
};

KindWords words_of(ApiErrorKind kind) {
  switch (kind) {
    case ApiErrorKind::kInvalid:
      return {400, "invalid_request_error", nullptr, "invalid_request_error"};
    case ApiErrorKind::kContextLength:
      return {400, "invalid_request_error", "context_length_exceeded", "invalid_request_error"};
    case ApiErrorKind::kAuthentication:
      return {401, "invalid_request_error", "invalid_api_key", "authentication_error"};
    case ApiErrorKind::kPermission:
      return {403, "invalid_request_error", "permission_denied", "permission_error"};
    case ApiErrorKind::kNotFound:
      return {404, "invalid_request_error", "not_found", "not_found_error"};
    case ApiErrorKind::kMethod:
      return {405, "invalid_request_error", "method_not_allowed", "invalid_request_error"};
    case ApiErrorKind::kSlow:
      return {408, "invalid_request_error", "request_timeout", "timeout_error"};
    case ApiErrorKind::kConflict:
      return {409, "invalid_request_error", "conflict", "invalid_request_error"};
    case ApiErrorKind::kTooLarge:
      return {413, "invalid_request_error", "request_too_large", "request_too_large"};
    case ApiErrorKind::kHeadTooLarge:
      return {431, "invalid_request_error", "head_too_large", "request_too_large"};
    case ApiErrorKind::kRateLimit:
      return {429, "rate_limit_error", "rate_limit_exceeded", "rate_limit_error"};
    case ApiErrorKind::kInternal:
      return {500, "server_error", "internal_error", "api_error"};
    case ApiErrorKind::kOverloaded:
      return {503, "server_error", "overloaded", "overloaded_error"};
    case ApiErrorKind::kTimeout:
      return {504, "server_error", "timeout", "timeout_error"};
  }
  return {500, "server_error", "internal_error", "api_error"};
}

nlohmann::ordered_json text_or_null(const std::string& text) {
  return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
}

}  // namespace

ApiError::ApiError(ApiErrorKind kind, const std::string& message, std::string param,
                   std::string code)
    : std::runtime_error(message), kind_(kind), param_(std::move(param)), code_(std::move(code)) {
  if (const char* own = words_of(kind).openai_code; code_.empty() && own) code_ = own;
}

int ApiError::status() const noexcept {
  return words_of(kind_).status;
}

ApiError& ApiError::set_cause(std::string cause) {
  cause_ = std::move(cause);
  return *this;
}

ApiError context_length_error(uint64_t tokens, uint64_t limit, bool at_least) {
  const std::string most = std::to_string(limit);
  return {ApiErrorKind::kContextLength,
          "prompt is too long: " + std::to_string(tokens) + " tokens > " + most +
              " maximum. This model's maximum context length is " + most +
              " tokens; shorten the messages" +
              (at_least ? " (they have more tokens than were counted)" : "")};
}

nlohmann::ordered_json openai_error_object(const ApiError& error) {
  return {{"message", error.what()},
          {"type", words_of(error.kind()).openai_type},
          {"param", text_or_null(error.param())},
          {"code", text_or_null(error.code())}};
}

nlohmann::ordered_json anthropic_error_object(const ApiError& error) {
  return {{"type", "error"},
          {"error", {{"type", words_of(error.kind()).anthropic_type}, {"message", error.what()}}}};
}

std::string openai_error(const ApiError& error) {
  return api::json_line({{"error", openai_error_object(error)}});
}

std::string anthropic_error(const ApiError& error) {
  return api::json_line(anthropic_error_object(error));
}

}  // namespace frt::host
