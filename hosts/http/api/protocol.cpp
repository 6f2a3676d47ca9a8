// SPDX-License-Identifier: Apache-2.0
#include "http/api/protocol.hpp"

#include <utility>

#include "http/api/chat/reply.hpp"
#include "http/api/chat/request.hpp"
#include "http/api/messages/reply.hpp"
#include "http/api/messages/request.hpp"
#include "http/api/responses/reply.hpp"
#include "http/api/responses/request.hpp"
#include "http/api/text/reply.hpp"
#include "http/api/text/request.hpp"

namespace frt::host {

namespace {

using Parse = ApiCall (*)(std::string_view, ApiHeaders, const ApiOptions&);
using Reply = std::unique_ptr<ReplyWriter> (*)(const ApiCall&, ReplyIdentity);
using ErrorBody = std::string (*)(const ApiError&);

template <Parse kParse, Reply kReply, ErrorBody kError, bool kOverflowInStream = false>
class ProtocolOf : public Protocol {
 public:
  ApiCall parse(std::string_view body, ApiHeaders headers,
                const ApiOptions& options) const override {
    return kParse(body, headers, options);
  }
  std::unique_ptr<ReplyWriter> reply(const ApiCall& call, ReplyIdentity identity) const override {
    return kReply(call, std::move(identity));
  }
  std::string error_body(const ApiError& error) const override { return kError(error); }
  bool tells_in_stream(ApiErrorKind kind) const override {
    return kOverflowInStream && kind == ApiErrorKind::kContextLength;
  }
};

}  // namespace

const Protocol& chat_completions() {
  static const ProtocolOf<api::parse_chat_request, api::make_chat_reply, openai_error> protocol;
  return protocol;
}

const Protocol& completions() {
  static const ProtocolOf<api::parse_text_request, api::make_text_reply, openai_error> protocol;
  return protocol;
}

const Protocol& responses() {
  static const ProtocolOf<api::parse_responses_request, api::make_responses_reply, openai_error,
                          true>
      protocol;
  return protocol;
}

const Protocol& messages() {
  static const ProtocolOf<api::parse_messages_request, api::make_messages_reply, anthropic_error>
      protocol;
  return protocol;
}

}  // namespace frt::host
