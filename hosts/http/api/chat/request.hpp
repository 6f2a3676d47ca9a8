// SPDX-License-Identifier: Apache-2.0
// request.hpp - a body of POST /v1/chat/completions as a call.
#pragma once

#include <string_view>

#include "http/api/protocol.hpp"

namespace frt::host::api {

// Throws ApiError.  [any]
ApiCall parse_chat_request(std::string_view body, ApiHeaders headers, const ApiOptions& options);

}  // namespace frt::host::api
