// SPDX-License-Identifier: Apache-2.0
// session_routes.hpp - conversations that the model's slots hold now, by the names that clients
// give them (session headers, prompt_cache_key). Each returns the answer's JSON; each throws
// ApiError, and Error for client_error(). On a worker that may wait.
//
//   GET     /v1/sessions               {"object": "list", "data": [session]}
//   GET     /v1/sessions/ID            {"id", "object", "tokens", "busy", "pinned", "boundaries"}
//   DELETE  /v1/sessions/ID            the slot forgets it
//   POST    /v1/sessions/ID/snapshot   {"name"}: a capsule of what it holds, on the disk
//   POST    /v1/sessions/ID/restore    {"capsule"}: it holds what the capsule holds
//   POST    /v1/sessions/ID/fork       {"as"}: a second session that holds the same
//   POST    /v1/sessions/ID/rewind     {"tokens"}: back to a boundary; without it, to the last one
//   POST    /v1/sessions/ID/pin, unpin its slot is given to no other conversation
//
// A session that a request uses now is "busy": what would change it is refused with 409.
#pragma once

#include <nlohmann/json.hpp>

#include "http/lm/state_call.hpp"

namespace frt::host::session_routes {

nlohmann::ordered_json list(const StateCall& call);
nlohmann::ordered_json show(const StateCall& call);
nlohmann::ordered_json forget(const StateCall& call);
nlohmann::ordered_json snapshot(const StateCall& call);
nlohmann::ordered_json restore(const StateCall& call);
nlohmann::ordered_json fork(const StateCall& call);
nlohmann::ordered_json rewind(const StateCall& call);
nlohmann::ordered_json pin(const StateCall& call);
nlohmann::ordered_json unpin(const StateCall& call);

}  // namespace frt::host::session_routes
