// SPDX-License-Identifier: Apache-2.0
// error.hpp - what a client is told when its request fails: one error, two shapes.
//
//   OpenAI     {"error": {"message", "type", "param", "code"}}
//   Anthropic  {"type": "error", "error": {"type", "message"}}
//
// Messages are for strangers: they name fields of the request, never a path, an address or a name
// of internals. What they quote is escaped and cut.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace frt::host {

enum class ApiErrorKind {
  kInvalid,         // 400: the request cannot be served as it is
  kContextLength,   // 400: the prompt has more tokens than the context
  kAuthentication,  // 401
  kPermission,      // 403
  kNotFound,        // 404
  kMethod,          // 405
  kSlow,            // 408: the request did not arrive in time
  kConflict,        // 409
  kTooLarge,        // 413
  kHeadTooLarge,    // 431
  kRateLimit,       // 429
  kInternal,        // 500
  kOverloaded,      // 503: full, loading or draining; the same request may pass later
  kTimeout,         // 504
};

class ApiError : public std::runtime_error {
 public:
  // `param`: the field of the request, "messages[3].content", which `message` names, too; empty:
  // none. `code`: OpenAI's machine-readable word; empty: the kind's own.
  ApiError(ApiErrorKind kind, const std::string& message, std::string param = {},
           std::string code = {});

  ApiErrorKind kind() const noexcept { return kind_; }
  const std::string& param() const noexcept { return param_; }
  const std::string& code() const noexcept { return code_; }
  int status() const noexcept;  // of HTTP
  // What the server's log says beside it: it may name what the client is not told.
  ApiError& set_cause(std::string cause);
  const std::string& cause() const noexcept { return cause_; }

 private:
  ApiErrorKind kind_;
  std::string param_, code_, cause_;
};

// A prompt of `tokens` that does not fit `limit`, in the words by which clients know that they must
// compact the conversation. `at_least`: counting ended there.  [any]
ApiError context_length_error(uint64_t tokens, uint64_t limit, bool at_least = false);

// The inner object of OpenAI's shape, and the whole of Anthropic's.  [any]
nlohmann::ordered_json openai_error_object(const ApiError& error);
nlohmann::ordered_json anthropic_error_object(const ApiError& error);

// The bodies.  [any]
std::string openai_error(const ApiError& error);
std::string anthropic_error(const ApiError& error);

}  // namespace frt::host
