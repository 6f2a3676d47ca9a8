// SPDX-License-Identifier: Apache-2.0
// state_call.hpp - what the routes of sessions and capsules share: names that belong to a key, and
// work on the engine's thread that never makes the engine wait for a disk.
//
// Two keys never see each other's state. A capsule belongs to the key that made it, and to the
// files of a server with keys its name is "KEY..NAME": so every key has all names for itself, and
// nobody learns from a refusal what another one has.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "http/api/error.hpp"
#include "http/api/limits.hpp"
#include "http/lm/served_model.hpp"

namespace frt::host {

class CapsuleUpload;

// A request of these routes. Runs on a worker that may wait.
struct StateCall {
  std::shared_ptr<const ServedModel> served;
  std::string owner;  // of the key; empty: there are no keys
  std::string id;     // of the session or capsule that the path names
  std::string body;
  const ApiLimits& limits;
  std::shared_ptr<CapsuleUpload> upload;  // of an import: its body
  uint32_t kept_capsules = 0;             // named and pinned ones that a key may have
};

// ---- names ----
// The registry's name of the capsule that `owner` calls `id`.  [any]
std::string stored_name(const std::string& owner, const std::string& id);
// What `owner` calls it.  [any]
std::string shown_name(const std::string& owner, const std::string& stored);
// Throws ApiError for a name that a client may not give.  [any]
void require_new_name(const std::string& owner, const std::string& id);

// ---- bodies ----
// The members of a body; an empty body has none. Throws ApiError.  [any]
nlohmann::ordered_json body_of(const StateCall& call);
// Throws ApiError unless `key` is a text of 1 to `most` bytes.  [any]
std::string text_member(const nlohmann::ordered_json& body, const char* key, std::size_t most);

// ---- the engine ----
using EngineWork = std::function<void(EngineAccess&, CapsuleRegistry&)>;
// Runs between two steps and waits for it. Throws what it throws, ApiError 409 without a registry.
void on_engine(const StateCall& call, const EngineWork& work);
// Begins something whose end comes later (CapsuleRegistry::save_later()), and waits for that end
// while the engine goes on. `begin` may throw FRT_ERR_NOT_READY: then it is tried again for a
// while.
using LaterWork = std::function<void(EngineAccess&, CapsuleRegistry&, BackgroundWorker::End)>;
void on_engine_later(const StateCall& call, const LaterWork& begin);
// Brings a capsule into memory while the engine goes on.
void bring_into_memory(const StateCall& call, const std::string& stored);

// The owner's capsule of that name, or ApiError 404.  [driver]
CapsuleView find_capsule(const CapsuleRegistry& registry, const StateCall& call,
                         const std::string& id);
// Throws ApiError 409 if the key has as many named and pinned capsules as it may.  [driver]
void require_quota(const CapsuleRegistry& registry, const StateCall& call);
// As lists show it.  [any]
nlohmann::ordered_json capsule_json(const std::string& owner, const CapsuleView& view);

// What a client is told of a failure: no path, no name of internals.  [any]
ApiError client_error(const Error& error);

}  // namespace frt::host
