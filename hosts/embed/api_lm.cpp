// SPDX-License-Identifier: Apache-2.0
// The C functions of language models, as api_runtime.cpp.
#include <utility>

#include "embed/call.hpp"
#include "embed/handles.hpp"
#include "embed/lm.hpp"

using namespace frt;         // NOLINT: this file is the C side of the namespace
using namespace frt::embed;  // NOLINT

extern "C" {

frt_status frt_lm_open(frt_runtime runtime, const char* name, const frt_lm_options* options,
                       frt_lm* lm, frt_error* error) {
  return api_call(error, [&](Call& now) {
    required(lm, "lm");
    const auto opened = now.object<Runtime>(runtime);
    frt_lm_options given{};
    if (options) given = read_table<frt_lm_options>(options, kCaller);
    *lm = new_handle<frt_lm>(opened->lm(opened->model_name(name), given));
  });
}

frt_status frt_lm_close(frt_lm lm) {
  return guard(nullptr, [&] { take_object<Lm>(lm); });
}

frt_status frt_lm_facts_of(frt_lm lm, frt_lm_facts* facts, frt_error* error) {
  return api_call(error,
                  [&](Call& now) { give(facts, now.object<Lm>(lm)->facts(), "frt_lm_facts"); });
}

frt_status frt_lm_encode(frt_lm lm, const char* text, uint64_t bytes, uint32_t flags, int32_t* ids,
                         uint64_t capacity, uint64_t* count, frt_error* error) {
  return api_call(error, [&](Call& now) {
    const auto opened = now.object<Lm>(lm);
    if (bytes > kMostText) {
      throw Error(FRT_ERR_OUT_OF_RANGE, "the text has " + std::to_string(bytes) + " bytes");
    }
    const auto given = list_of(text, bytes, "text");
    const auto encoded = opened->encode({given.data(), given.size()}, flags);
    give_list(std::span<const int32_t>(encoded), ids, capacity, count);
  });
}

frt_status frt_lm_decode(frt_lm lm, const int32_t* ids, uint64_t id_count, uint32_t flags,
                         char* text, uint64_t capacity, uint64_t* count, frt_error* error) {
  return api_call(error, [&](Call& now) {
    const auto opened = now.object<Lm>(lm);
    const auto given = list_of(ids, id_count, "ids");
    opened->model().check_ids(given, "ids");
    give_text(opened->model().decode(given, flags), text, capacity, count);
  });
}

frt_status frt_lm_render(frt_lm lm, const char* messages, const char* tools, const char* options,
                         char* text, uint64_t capacity, uint64_t* count, frt_error* error) {
  return api_call(error, [&](Call& now) {
    const auto opened = now.object<Lm>(lm);
    give_text(opened->render(required(messages, "messages"), tools, options).text, text, capacity,
              count);
  });
}

// ---- generating ----

frt_status frt_lm_generate(frt_lm lm, frt_session session, const frt_generate_request* request,
                           frt_generation* generation, frt_error* error) {
  return api_call(error, [&](Call& now) {
    required(generation, "generation");
    const auto opened = now.object<Lm>(lm);
    const auto held = session ? now.object<Session>(session) : nullptr;
    const auto given = read_table<frt_generate_request>(request, kCaller);
    *generation = new_handle<frt_generation>(std::make_shared<Generation>(opened, held, given));
  });
}

frt_status frt_generation_close(frt_generation generation) {
  return guard(nullptr, [&] { take_object<Generation>(generation)->cancel(); });
}

frt_status frt_generation_next(frt_generation generation, uint64_t timeout_ms,
                               frt_generation_event* event, frt_error* error) {
  return api_call(error, [&](Call& now) {
    const auto opened = now.object<Generation>(generation);
    required(event, "event");
    require_size(event, "frt_generation_event");  // before an event is taken
    give(event, opened->next(timeout_ms), "frt_generation_event");
  });
}

frt_status frt_generation_run(frt_generation generation, frt_event_sink sink, void* user,
                              frt_error* error) {
  return api_call(error, [&](Call& now) {
    const auto opened = now.object<Generation>(generation);
    required(sink, "sink");
    for (;;) {
      frt_generation_event event = opened->next(FRT_NO_TIMEOUT);
      if (event.kind == FRT_EVENT_END) return;
      event.struct_size = sizeof(event);
      const frt_status status = sink(user, &event);
      if (status == FRT_OK) continue;
      opened->cancel();
      throw Error(is_status(status) ? status : FRT_ERR_CALLBACK,
                  "the program's sink of events returned " + status_text(status));
    }
  });
}

frt_status frt_generation_cancel(frt_generation generation) {
  return guard(nullptr, [&] { object_of<Generation>(generation)->cancel(); });
}

frt_status frt_generation_result_of(frt_generation generation, frt_generation_result* result,
                                    frt_error* error) {
  return api_call(error, [&](Call& now) {
    give(result, now.object<Generation>(generation)->result(), "frt_generation_result");
  });
}

// ---- sessions ----

frt_status frt_session_open(frt_lm lm, frt_session* session, frt_error* error) {
  return api_call(error, [&](Call& now) {
    required(session, "session");
    *session = new_handle<frt_session>(std::make_shared<Session>(now.object<Lm>(lm)));
  });
}

frt_status frt_session_close(frt_session session) {
  return guard(nullptr, [&] { take_object<Session>(session); });
}

frt_status frt_session_tokens(frt_session session, int32_t* ids, uint64_t capacity, uint64_t* count,
                              frt_error* error) {
  return api_call(error, [&](Call& now) {
    const auto tokens = now.object<Session>(session)->tokens();
    give_list(std::span<const int32_t>(tokens), ids, capacity, count);
  });
}

frt_status frt_session_held(frt_session session, uint64_t* tokens, frt_error* error) {
  return api_call(error, [&](Call& now) {
    required(tokens, "tokens");
    *tokens = now.object<Session>(session)->held();
  });
}

frt_status frt_session_fork(frt_session session, frt_session* other, frt_error* error) {
  return api_call(error, [&](Call& now) {
    required(other, "other");
    *other = new_handle<frt_session>(now.object<Session>(session)->fork());
  });
}

frt_status frt_session_snapshot(frt_session session, frt_space space, frt_lm_capsule* capsule,
                                frt_error* error) {
  return api_call(error, [&](Call& now) {
    required(capsule, "capsule");
    *capsule = new_handle<frt_lm_capsule>(now.object<Session>(session)->snapshot(space));
  });
}

frt_status frt_session_restore(frt_session session, frt_lm_capsule capsule, frt_error* error) {
  return api_call(error, [&](Call& now) {
    const auto held = now.object<Session>(session);
    held->restore(*now.object<LmCapsule>(capsule));
  });
}

// ---- capsules ----

frt_status frt_lm_capsule_facts(frt_lm_capsule capsule, frt_capsule_facts* facts,
                                frt_error* error) {
  return api_call(error, [&](Call& now) {
    give(facts, now.object<LmCapsule>(capsule)->facts(), "frt_capsule_facts");
  });
}

frt_status frt_lm_capsule_close(frt_lm_capsule capsule) {
  return guard(nullptr, [&] { take_object<LmCapsule>(capsule); });
}

frt_status frt_lm_capsule_save(frt_lm_capsule capsule, const char* folder, const char* name,
                               uint32_t replace, frt_error* error) {
  return api_call(error, [&](Call& now) {
    const auto kept = now.object<LmCapsule>(capsule);
    kept->save(required(folder, "folder"), required(name, "name"), replace != 0);
  });
}

frt_status frt_lm_capsule_load(frt_lm lm, const char* folder, const char* name,
                               frt_lm_capsule* capsule, frt_error* error) {
  return api_call(error, [&](Call& now) {
    required(capsule, "capsule");
    *capsule = new_handle<frt_lm_capsule>(
        LmCapsule::load(now.object<Lm>(lm), required(folder, "folder"), required(name, "name")));
  });
}

}  // extern "C"
