// SPDX-License-Identifier: Apache-2.0
// protocol.hpp - the wire protocols: bytes of a request to a call, what was generated to bytes of a
// reply. Pure code: no socket, no clock, no random numbers, no model.
//
// Fields that a protocol does not know are ignored. Fields that it knows and that cannot be served
// are refused with their name, if they change what the answer would be. All members are [any].
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "http/api/call.hpp"
#include "http/api/error.hpp"
#include "http/api/limits.hpp"
#include "http/api/writer.hpp"

namespace frt::host {

using ApiHeaders = std::span<const std::pair<std::string, std::string>>;  // names in lower case

struct ApiOptions {
  ApiLimits limits;
  // Tools sorted by name: clients whose tool servers reconnect send them in another order, which
  // would change the prompt from its beginning.
  bool sort_tools = false;
};

// What makes a reply unlike any other.
struct ReplyIdentity {
  std::string id;        // letters and digits, unique; the reply's ids are made of it
  uint64_t created = 0;  // seconds since 1970
  std::string model;     // the name that the reply tells
};

class Protocol {
 public:
  virtual ~Protocol() = default;
  // Throws ApiError for what cannot be served.
  virtual ApiCall parse(std::string_view body, ApiHeaders headers,
                        const ApiOptions& options) const = 0;
  // `call` outlives the writer.
  virtual std::unique_ptr<ReplyWriter> reply(const ApiCall& call, ReplyIdentity identity) const = 0;
  virtual std::string error_body(const ApiError& error) const = 0;
  // True: clients of a stream look for this error in its events. Codex compacts its conversation at
  // response.failed with context_length_exceeded, and gives up at the 400.
  virtual bool tells_in_stream(ApiErrorKind kind) const = 0;
};

const Protocol& chat_completions();  // POST /v1/chat/completions
const Protocol& completions();       // POST /v1/completions
const Protocol& responses();         // POST /v1/responses, stateless
const Protocol& messages();          // POST /v1/messages

// POST /v1/messages/count_tokens: a request of messages() that generates nothing, so max_tokens may
// be missing; and its answer.
ApiCall parse_count_tokens(std::string_view body, ApiHeaders headers, const ApiOptions& options);
std::string count_tokens_body(uint64_t tokens);

}  // namespace frt::host
