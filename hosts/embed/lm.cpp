// SPDX-License-Identifier: Apache-2.0
#include "embed/lm.hpp"

#include <frt/core/capsules.hpp>
#include <frt/core/state.hpp>
#include <frt/io/json.hpp>

#include <functional>
#include <utility>

#include "lm/chat/parting_point.hpp"
#include "runtime/lm_settings.hpp"

namespace frt::embed {
namespace {

using Json = nlohmann::ordered_json;

std::vector<int32_t> stop_ids_of(const Json& defaults) {
  const auto found = defaults.find("stop_token_ids");
  return found == defaults.end() ? std::vector<int32_t>{} : found->get<std::vector<int32_t>>();
}

Json json_of(const char* text, const char* name) {
  return text ? io::parse_json(text, name) : Json();
}

}  // namespace

host::LmModel language_model_of(const Instance& instance) {
  return host::LmModel(instance.device().context(), core::state_table(), core::capsules_table(),
                       instance.made().table, instance.made().handle, instance.name(),
                       instance.plugin());
}

Lm::Lm(std::shared_ptr<Instance> instance, const frt_lm_options& options)
    : lease_(instance, EngineUser::kProgram),
      log_(instance->runtime().log()),
      model_(language_model_of(*instance)),
      defaults_(model_.generation_defaults()),
      stop_ids_(stop_ids_of(defaults_)) {
  Runtime& runtime = instance->runtime();
  host::CapsuleSettings settings = host::capsule_settings(runtime.manifest(), model_.name());
  registry_ = host::open_capsules(runtime.log(), model_, settings.capsules);
  host::EngineOptions engine;
  if (options.queue_limit > 0) engine.queue_limit = options.queue_limit;
  engine.session = settings.session;
  engine.around = [&log = log_](const std::function<void()>& body) {
    const core::LogScope scope(&log);
    body();
  };
  engine_ = std::make_unique<host::Engine>(model_, registry_.get(), engine);
}

frt_lm_facts Lm::facts() const noexcept {
  frt_lm_facts facts{};
  facts.vocabulary = model_.info().vocabulary;
  facts.context = model_.info().max_context;
  facts.slots = model_.info().slots;
  facts.has_tokenizer = model_.has_tokenizer() ? 1 : 0;
  facts.has_chat = model_.has_chat() ? 1 : 0;
  facts.name = model_.name().c_str();
  return facts;
}

std::vector<int32_t> Lm::encode(std::string_view text, uint32_t flags) const {
  return model_.encode(text, flags);
}

host::ChatPrompt Lm::render(const char* messages, const char* tools, const char* options) const {
  return model_.render(json_of(messages, "messages"), json_of(tools, "tools"),
                       json_of(options, "options"));
}

uint64_t Lm::parting_point(const frt_generate_request& request, const host::ChatPrompt& prompt,
                           const std::vector<int32_t>& ids) const {
  return host::parting_point(model_, json_of(request.messages, "messages"),
                             json_of(request.tools, "tools"),
                             json_of(request.chat_options, "chat_options"), prompt, ids);
}

void Lm::warn(std::string notice) const {
  if (notice.empty()) return;
  registry_->tell(std::move(notice));
  host::show_notices(log_, *registry_);
}

std::string Lm::new_affinity() {
  return "session-" + std::to_string(++sessions_);
}

}  // namespace frt::embed
