// SPDX-License-Identifier: Apache-2.0
#include "http/lm/session_routes.hpp"

#include <algorithm>
#include <frt/error.hpp>
#include <string>
#include <vector>

#include "lm/sampling.hpp"

namespace frt::host::session_routes {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kLongestName = 128;

ApiError no_such_session() {
  return {ApiErrorKind::kNotFound,
          "there is no such session; see GET /v1/sessions",
          {},
          "session_not_found"};
}

ApiError busy_session() {
  return {ApiErrorKind::kConflict, "a request uses this session now; try again when it is over"};
}

Json session_json(const std::string& owner, const EngineSession& session) {
  Json boundaries = Json::array();
  for (const Session::Boundary& boundary : session.boundaries) {
    boundaries.push_back({{"tokens", boundary.position},
                          {"kind", capsule_kind_name(boundary.kind)},
                          {"capsule", shown_name(owner, boundary.capsule)}});
  }
  return {{"id", session.affinity},   {"object", "session"},
          {"tokens", session.tokens}, {"busy", session.busy},
          {"pinned", session.pinned}, {"boundaries", std::move(boundaries)}};
}

EngineSession found(const EngineAccess& access, const StateCall& call, const std::string& id) {
  for (EngineSession& session : access.sessions(call.owner)) {
    if (session.affinity == id) return std::move(session);
  }
  throw no_such_session();
}

// The session, if nobody uses it.
Session& idle(EngineAccess& access, const StateCall& call, const std::string& id) {
  if (found(access, call, id).busy) throw busy_session();
  Session* session = access.idle_session(call.owner, id);
  if (!session) throw no_such_session();
  return *session;
}

// A slot for the session, but not `spared`.
Session& claimed(EngineAccess& access, const StateCall& call, const std::string& id,
                 const Session* spared = nullptr) {
  const std::vector<EngineSession> all = access.sessions(call.owner);
  const auto known = std::ranges::find(all, id, &EngineSession::affinity);
  if (known != all.end() && known->busy) throw busy_session();
  Session* session = access.claim_session(call.owner, id, spared);
  if (session) return *session;
  throw ApiError(ApiErrorKind::kOverloaded, "no slot is free for this session; try again later");
}

// The session holds the capsule, which is in memory or on the disk.
Json hold(const StateCall& call, const std::string& stored) {
  bring_into_memory(call, stored);
  Json answer;
  on_engine(call, [&](EngineAccess& access, CapsuleRegistry&) {
    Session& session = claimed(access, call, call.id);
    const auto content = session.restore(stored);
    if (content->owner != call.owner) {  // another file stands under the name by now
      session.clear();
      throw Error(FRT_ERR_NOT_FOUND, "the capsule '" + stored + "' belongs to another key");
    }
    answer = session_json(call.owner, found(access, call, call.id));
  });
  return answer;
}

Json set_pin(const StateCall& call, bool pinned) {
  Json answer;
  on_engine(call, [&](EngineAccess& access, CapsuleRegistry&) {
    found(access, call, call.id);
    try {
      access.pin(call.owner, call.id, pinned);
    } catch (const Error& error) {
      if (error.status() != FRT_ERR_OUT_OF_RANGE) throw;
      throw ApiError(ApiErrorKind::kConflict,
                     "as many sessions are pinned as can be; unpin one first");
    }
    answer = session_json(call.owner, found(access, call, call.id));
  });
  return answer;
}

}  // namespace

Json list(const StateCall& call) {
  Json data = Json::array();
  on_engine(call, [&](EngineAccess& access, CapsuleRegistry&) {
    for (const EngineSession& session : access.sessions(call.owner)) {
      data.push_back(session_json(call.owner, session));
    }
  });
  return {{"object", "list"}, {"data", std::move(data)}};
}

Json show(const StateCall& call) {
  Json answer;
  on_engine(call, [&](EngineAccess& access, CapsuleRegistry&) {
    answer = session_json(call.owner, found(access, call, call.id));
  });
  return answer;
}

Json forget(const StateCall& call) {
  on_engine(call, [&](EngineAccess& access, CapsuleRegistry&) {
    if (found(access, call, call.id).busy) throw busy_session();
    access.forget_session(call.owner, call.id);
  });
  return {{"id", call.id}, {"object", "session"}, {"deleted", true}};
}

Json snapshot(const StateCall& call) {
  const std::string name = text_member(body_of(call), "name", kLongestName);
  require_new_name(call.owner, name);
  const std::string stored = stored_name(call.owner, name);
  const frt_sampling_params sampling = resolve_sampling({}, call.served->defaults);
  on_engine_later(
      call, [&](EngineAccess& access, CapsuleRegistry& registry, const BackgroundWorker::End& end) {
        if (registry.options().folder.empty()) {
          throw ApiError(ApiErrorKind::kConflict, "this server keeps no capsules on a disk");
        }
        require_quota(registry, call);
        idle(access, call, call.id).save_later(stored, sampling, end);
      });
  Json answer;
  on_engine(call, [&](EngineAccess&, CapsuleRegistry& registry) {
    answer = capsule_json(call.owner, find_capsule(registry, call, name));
  });
  return answer;
}

Json restore(const StateCall& call) {
  const std::string name = text_member(body_of(call), "capsule", kLongestName);
  std::string stored;
  on_engine(call, [&](EngineAccess&, CapsuleRegistry& registry) {
    stored = find_capsule(registry, call, name).name;
  });
  return hold(call, stored);
}

Json fork(const StateCall& call) {
  const std::string other = text_member(body_of(call), "as", kLongestSession);
  if (other == call.id) {
    throw ApiError(ApiErrorKind::kInvalid, "as must name another session", "as");
  }
  Json answer;
  on_engine(call, [&](EngineAccess& access, CapsuleRegistry& registry) {
    const Session& source = idle(access, call, call.id);
    Session& target = claimed(access, call, other, &source);
    target.clear();
    for (bool done = false; !done;) {
      try {
        source.fork_to(target);
        done = true;
      } catch (const Error& error) {
        if (error.status() == FRT_ERR_OUT_OF_MEMORY && registry.make_room()) continue;
        target.clear();
        throw;
      }
    }
    answer = session_json(call.owner, found(access, call, other));
  });
  return answer;
}

Json rewind(const StateCall& call) {
  const Json body = body_of(call);
  const auto wanted = body.find("tokens");
  if (wanted != body.end() && !wanted->is_number_unsigned()) {
    throw ApiError(ApiErrorKind::kInvalid, "tokens must be a number of tokens", "tokens");
  }
  std::string stored;
  on_engine(call, [&](EngineAccess& access, CapsuleRegistry& registry) {
    const Session& session = idle(access, call, call.id);
    for (const Session::Boundary& boundary : session.boundaries()) {
      const bool fits = wanted == body.end() ? boundary.position < session.journal().size()
                                             : boundary.position == wanted->get<uint64_t>();
      if (fits && registry.has(boundary.capsule)) stored = boundary.capsule;
    }
  });
  if (!stored.empty()) return hold(call, stored);
  throw ApiError(ApiErrorKind::kConflict,
                 "the session has no such boundary, or its capsule is gone; see its boundaries",
                 "tokens");
}

Json pin(const StateCall& call) {
  return set_pin(call, true);
}

Json unpin(const StateCall& call) {
  return set_pin(call, false);
}

}  // namespace frt::host::session_routes
