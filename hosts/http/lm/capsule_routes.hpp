// SPDX-License-Identifier: Apache-2.0
// capsule_routes.hpp - a key's capsules (lm/capsules/registry.hpp). Each returns the answer's JSON;
// each throws ApiError, and Error for client_error(). On a worker that may wait.
//
//   GET     /v1/capsules             {"object": "list", "data": [capsule]}, oldest first
//   GET     /v1/capsules/ID          {"id", "object", "kind", "tokens", "created", "parent",
//                                    "pinned", "exact", "tiers", "device_bytes", ...}
//   DELETE  /v1/capsules/ID          from every tier
//   POST    /v1/capsules/ID/pin      it stays where it is; a pin of one on the disk outlives the
//                                    server
//   POST    /v1/capsules/ID/unpin
//   GET     /v1/capsules/ID/export   its file, as a stream
//   POST    /v1/capsules/ID/import   the body is such a file, written to the disk as it arrives;
//                                    it is kept once every byte of it is verified, it is of this
//                                    model, and this key exported it
#pragma once

#include <memory>
#include <nlohmann/json.hpp>

#include "http/exchange.hpp"
#include "http/lm/capsule_upload.hpp"
#include "http/lm/state_call.hpp"
#include "http/workers.hpp"

namespace frt::host::capsule_routes {

nlohmann::ordered_json list(const StateCall& call);
nlohmann::ordered_json show(const StateCall& call);
nlohmann::ordered_json remove(const StateCall& call);
nlohmann::ordered_json pin(const StateCall& call);
nlohmann::ordered_json unpin(const StateCall& call);
// Once the call's upload is complete.
nlohmann::ordered_json take_in(const StateCall& call);
// What an upload begins with: whether there may be such an import at all, and its file.
std::unique_ptr<IncomingCapsule> begin_import(const StateCall& call);

// The answer is a stream of the file; FileStream::start() says what the rest is.
void send(const StateCall& call, const std::shared_ptr<Exchange>& exchange, Workers& workers);

}  // namespace frt::host::capsule_routes
