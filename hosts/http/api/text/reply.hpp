// SPDX-License-Identifier: Apache-2.0
// reply.hpp - the reply of POST /v1/completions: a text_completion, or its pieces.
#pragma once

#include <memory>

#include "http/api/protocol.hpp"

namespace frt::host::api {

std::unique_ptr<ReplyWriter> make_text_reply(const ApiCall& call, ReplyIdentity identity);

}  // namespace frt::host::api
