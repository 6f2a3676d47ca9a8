// SPDX-License-Identifier: Apache-2.0
// reply.hpp - the reply of POST /v1/responses: a response, or its events.
#pragma once

#include <memory>

#include "http/api/protocol.hpp"

namespace frt::host::api {

std::unique_ptr<ReplyWriter> make_responses_reply(const ApiCall& call, ReplyIdentity identity);

}  // namespace frt::host::api
