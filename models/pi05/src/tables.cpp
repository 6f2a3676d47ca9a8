// SPDX-License-Identifier: Apache-2.0
// The tables model, role, capsule, observation and tokenizer.
#include "tables.hpp"

#include <algorithm>
#include <frt/error.hpp>
#include <frt/flags.hpp>
#include <frt/models/json.hpp>
#include <frt/observation.hpp>
#include <frt/role/contracts.hpp>

namespace frt::pi05 {
namespace {

// ---- role ------------------------------------------------------------------------------------

frt_status policy_info(frt_model model, frt_policy_info* out) {
  if (!model || !model_of(model).loaded()) return FRT_ERR_INVALID_ARGUMENT;
  return fill(out, model_of(model).policy_info());
}

template <GraphKind kKind>
frt_status key_of(frt_model model, const frt_policy_shape* shape, frt_shape_key* key) {
  if (!model || !shape || !key) return FRT_ERR_INVALID_ARGUMENT;
  return guard(nullptr, [&] {
    return model_of(model).key(kKind, read_table<frt_policy_shape>(shape, "the host"), *key);
  });
}

frt_status set_prompt(frt_model model, uint32_t branch, const char* instruction,
                      const char* options, frt_stream stream, uint32_t* tokens, frt_error* error) {
  return guard(error, [&] {
    Observer& observer = *model_of(model).parts().observer;
    if (!instruction || branch >= model_of(model).policy_info().guidance_branches) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, "set_prompt: an instruction and a branch there is");
    }
    std::vector<double> state;
    const models::Json json =
        options && options[0] ? io::parse_json(options, "options") : models::Json::object();
    for (const auto& [name, value] : json.items()) {
      if (name != "state" || !value.is_array()) {
        throw Error(FRT_ERR_INVALID_ARGUMENT,
                    "set_prompt: option '" + name + "', expected \"state\": [numbers]");
      }
      for (const models::Json& number : value) {
        if (!number.is_number()) {
          throw Error(FRT_ERR_INVALID_ARGUMENT, "set_prompt: a state value is no number");
        }
        state.push_back(number.get<double>());
      }
    }
    const Interface& face = observer.face();
    if (face.state_in_prompt) {
      if (state.empty()) {
        throw Error(FRT_ERR_INVALID_ARGUMENT,
                    "set_prompt: this policy's prompt holds the state; give options "
                    "{\"state\": [...]}");
      }
      if (face.adapt_to_pi) aloha_state(state);
      if (face.has_statistics) state = observer.normalised(std::move(state));
    }
    const std::vector<std::int32_t> ids = observer.prompt_ids(branch, instruction, state);
    observer.set_ids(branch, ids, stream);
    if (tokens) *tokens = static_cast<uint32_t>(ids.size());
  });
}

frt_status set_guidance(frt_model model, const float* strengths, uint64_t count, frt_stream stream,
                        frt_error* error) {
  return guard(error, [&] {
    if (!strengths && count > 0) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, "set_guidance: no strengths given");
    }
    model_of(model).set_guidance({strengths, count}, stream);
  });
}

frt_status set_continuation(frt_model model, const frt_policy_previous* previous, frt_stream stream,
                            frt_error* error) {
  return guard(error, [&] {
    model_of(model).set_continuation(
        read_table<frt_policy_previous>(previous, "set_continuation: the host"), stream);
  });
}

// ---- observation -----------------------------------------------------------------------------

frt_status observation_info(frt_model model, frt_observation_info* out) {
  if (!model) return FRT_ERR_INVALID_ARGUMENT;
  const Model& self = model_of(model);
  const Interface& face = self.parts().face;
  frt_observation_info known{};
  known.struct_size = sizeof(known);
  known.action_dim = static_cast<uint32_t>(face.action_dim);
  known.state_dim = static_cast<uint32_t>(face.state_dim);
  known.names = self.names_json().c_str();
  known.metadata = self.metadata_json().c_str();
  return fill(out, known);
}

frt_status write_observation(frt_model model, const frt_observation* observation, frt_stream stream,
                             frt_observed* observed, frt_error* error) {
  return guard(error, [&] {
    const auto given = read_observation(observation, "write: the host");
    read_table<frt_observed>(observed, "write: the host");
    frt_observed known{};
    known.struct_size = sizeof(known);
    model_of(model).parts().observer->write(given, stream, known);
    check(fill(observed, known), "observed");
  });
}

frt_status finish_actions(frt_model model, const frt_observed* observed, const float* actions,
                          double* robot, frt_error* error) {
  return guard(error, [&] {
    if (!actions || !robot) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, "finish: actions and robot must be given");
    }
    model_of(model).parts().observer->finish(read_table<frt_observed>(observed, "finish: the host"),
                                             actions, robot);
  });
}

// ---- tokenizer -------------------------------------------------------------------------------

// SentencePiece knows no streaming: ids are kept, and what is complete is given out.
struct TextStream {
  const models::SentencePiece& tokenizer;
  std::vector<std::int32_t> ids;
  std::size_t given = 0;  // bytes
};

uint32_t vocabulary(frt_model model) {
  return static_cast<uint32_t>(model_of(model).tokenizer()->vocab_size());
}

// Plain parts need nothing: no text becomes a control piece.
frt_status encode(frt_model model, const char* text, uint64_t bytes,
                  const frt_encode_params* params, frt_sink sink, void* user, frt_error* error) {
  return guard(error, [&]() -> frt_status {
    frt_encode_params given{};
    if (params) given = read_table<frt_encode_params>(params, "encode: the host");
    require_flags(given.flags, FRT_ENCODE_PLAIN | FRT_ENCODE_CONTINUES, "encode");
    std::vector<std::int32_t> ids;
    try {
      ids = model_of(model).tokenizer()->encode(std::string_view(text, bytes), given.max_tokens);
    } catch (const Error& failure) {
      if (failure.status() != FRT_ERR_INVALID_ARGUMENT) throw;
      throw Error(FRT_ERR_FORMAT, failure.what());
    }
    return ids.empty() ? FRT_OK : sink(user, ids.data(), ids.size() * sizeof(ids[0]));
  });
}

// Control pieces have no text, with FRT_DECODE_SKIP_SPECIAL and without.
frt_status decode(frt_model model, const int32_t* ids, uint64_t count, uint32_t flags,
                  frt_sink sink, void* user, frt_error* error) {
  return guard(error, [&]() -> frt_status {
    require_flags(flags, FRT_DECODE_SKIP_SPECIAL, "decode");
    const std::string text = model_of(model).tokenizer()->decode({ids, count});
    return text.empty() ? FRT_OK : sink(user, text.data(), text.size());
  });
}

int32_t token_id(frt_model model, const char* token) {
  int32_t id = -1;
  guard(nullptr, [&] { id = model_of(model).tokenizer()->piece_id(token); });
  return id;
}

frt_status stream_create(frt_model model, uint32_t flags, frt_text_stream* stream,
                         frt_error* error) {
  return guard(error, [&] {
    require_flags(flags, FRT_DECODE_SKIP_SPECIAL, "stream_create");
    *stream = handle<frt_text_stream>(new TextStream{*model_of(model).tokenizer(), {}, 0});
  });
}

frt_status give_rest(TextStream& self, bool all, frt_sink sink, void* user) {
  const std::string text = self.tokenizer.decode(self.ids);
  std::size_t end = text.size();
  // An unfinished character has up to three bytes, each of which is one of these so far.
  constexpr std::string_view kBroken = "\xEF\xBF\xBD";
  for (int i = 0; i < 3 && !all && std::string_view(text).substr(0, end).ends_with(kBroken); ++i) {
    end -= kBroken.size();
  }
  if (end <= self.given) return FRT_OK;
  const std::size_t first = std::exchange(self.given, end);
  return sink(user, text.data() + first, end - first);
}

frt_status stream_push(frt_text_stream stream, int32_t id, frt_sink sink, void* user,
                       frt_error* error) {
  return guard(error, [&] {
    auto& self = *object<TextStream>(stream);
    self.ids.push_back(id);
    return give_rest(self, false, sink, user);
  });
}

frt_status stream_flush(frt_text_stream stream, frt_sink sink, void* user, frt_error* error) {
  return guard(error, [&] {
    auto& self = *object<TextStream>(stream);
    const frt_status status = give_rest(self, true, sink, user);
    self.ids.clear();
    self.given = 0;
    return status;
  });
}

void stream_destroy(frt_text_stream stream) {
  delete object<TextStream>(stream);
}

}  // namespace

const void* Model::extension(std::string_view id) noexcept {
  if (id == FRT_EXT_TOKENIZER) return tokenizer() ? &tokenizer_table() : nullptr;
  if (!loaded()) return nullptr;
  if (id == FRT_EXT_ROLE_POLICY) return &role_table();
  if (id == FRT_EXT_OBSERVATION) return &observation_table();
  if (id == FRT_EXT_CAPSULE) return &capsule_table();
  if (id == FRT_EXT_SELFTEST) return &selftest_table();
  if (id == FRT_EXT_CALIBRATION) return &calibration_table();
  return nullptr;
}

const void* PolicyPlugin::extension(std::string_view id) noexcept {
  return id == FRT_EXT_MODEL ? &model_table() : nullptr;
}

const frt_model_v1& model_table() noexcept {
  static constexpr frt_model_v1 kTable = frt::model_table<PolicyPlugin, Model>();
  return kTable;
}

const frt_role_policy_v1& role_table() noexcept {
  static constexpr frt_role_policy_v1 kTable = {sizeof(frt_role_policy_v1),
                                                0,
                                                policy_info,
                                                key_of<GraphKind::kInfer>,
                                                key_of<GraphKind::kObserve>,
                                                key_of<GraphKind::kAct>,
                                                set_prompt,
                                                set_guidance,
                                                set_continuation,
                                                key_of<GraphKind::kVision>,
                                                key_of<GraphKind::kPrefix>};
  return kTable;
}

const frt_capsule_v1& capsule_table() noexcept {
  static constexpr frt_capsule_v1 kTable = frt::capsule_table<Model>();
  return kTable;
}

const frt_observation_v1& observation_table() noexcept {
  static constexpr frt_observation_v1 kTable = {sizeof(frt_observation_v1), 0, observation_info,
                                                write_observation, finish_actions};
  return kTable;
}

const frt_tokenizer_v1& tokenizer_table() noexcept {
  static constexpr frt_tokenizer_v1 kTable = {sizeof(frt_tokenizer_v1),
                                              0,
                                              vocabulary,
                                              encode,
                                              decode,
                                              token_id,
                                              stream_create,
                                              stream_push,
                                              stream_flush,
                                              stream_destroy,
                                              nullptr};
  return kTable;
}

}  // namespace frt::pi05
