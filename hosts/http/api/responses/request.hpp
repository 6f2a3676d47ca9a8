// SPDX-License-Identifier: Apache-2.0
// request.hpp - a body of POST /v1/responses as a call. Nothing is stored: each request brings its
// whole conversation.
#pragma once

#include <string_view>

#include "http/api/protocol.hpp"

namespace frt::host::api {

// Throws ApiError.  [any]
ApiCall parse_responses_request(std::string_view body, ApiHeaders headers,
                                const ApiOptions& options);

}  // namespace frt::host::api
