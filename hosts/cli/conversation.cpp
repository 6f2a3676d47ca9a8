// SPDX-License-Identifier: Apache-2.0
// The whole conversation is rendered for every question; the generator feeds only what neither the
// slot nor a capsule holds, as far as the rendering continues what was fed.
//
// Where will the next question's rendering part from this one's? A format may leave earlier
// reasoning out, so it may be within the answer. parting_point() asks the format itself: it renders
// the conversation with an invented answer and question behind it and looks how much stays.
#include "cli/conversation.hpp"

#include <algorithm>
#include <fstream>
#include <utility>

namespace frt::host {

using Json = nlohmann::ordered_json;

Conversation::Conversation(const LmModel& model, CapsuleRegistry& registry,
                           const SessionOptions& session, Json options)
    : model_(model),
      registry_(registry),
      generator_(model, 0, &registry, session),
      options_(std::move(options)),
      current_("main") {
  branches_[current_];
}

Conversation::~Conversation() {
  current_.clear();
  for (const std::string& name : pinned_) {
    if (registry_.has(name)) registry_.pin(name, false);
  }
}

void Conversation::set_system(const std::string& text) {
  Json& messages = here().messages;
  const bool has_system = !messages.empty() && messages[0]["role"] == "system";
  if (has_system) messages.erase(messages.begin());
  if (!text.empty()) {
    messages.insert(messages.begin(), Json{{"role", "system"}, {"content", text}});
  }
}

void Conversation::reset() {
  Json& messages = here().messages;
  const bool has_system = !messages.empty() && messages[0]["role"] == "system";
  messages.erase(messages.begin() + (has_system ? 1 : 0), messages.end());
  here().points.clear();
}

void Conversation::export_to(const std::string& path) const {
  std::ofstream file(path);
  file << messages().dump(2) << "\n";
  file.close();
  if (!file) throw Error(FRT_ERR_IO, "cannot write " + path + "; choose another file");
}

void Conversation::import_from(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Error(FRT_ERR_IO, "cannot read " + path);
  Json messages = Json::parse(file, nullptr, false);
  if (!messages.is_array()) {
    throw Error(FRT_ERR_FORMAT, path + ": not a list of messages as /export writes it");
  }
  if (!messages.empty()) {
    // Refuses what the format cannot say, before the present conversation is given up.
    Json probe = messages;
    probe.push_back({{"role", "user"}, {"content", "?"}});
    model_.render(probe, {}, options_);
  }
  here() = {std::move(messages), {}};
}

uint64_t Conversation::parting_point(const std::vector<int32_t>& prompt) const {
  Json later = messages();
  later.push_back({{"role", "assistant"}, {"content", "x"}, {"reasoning_content", "x"}});
  later.push_back({{"role", "user"}, {"content", "x"}});
  return common_prefix(prompt, model_.encode(model_.render(later, {}, options_)));
}

Conversation::Turn Conversation::ask(const std::string& text, GenerationRequest request,
                                     const std::function<void(const std::string&)>& show,
                                     const std::function<bool()>& cancelled) {
  Json& messages = here().messages;
  messages.push_back({{"role", "user"}, {"content", text}});
  Turn turn;
  std::string answer;
  try {
    request.prompt = model_.encode(model_.render(messages, {}, options_));
    request.keep = true;
    request.user_turn = parting_point(request.prompt);
    TextStream decoder(model_, FRT_DECODE_SKIP_SPECIAL);
    const auto emit = [&](const std::string& piece) {
      answer += piece;
      if (!piece.empty()) show(piece);
    };
    request.on_token = [&](int32_t id, float) {
      emit(decoder.push(id));
      return cancelled() ? Next::kCancel : Next::kContinue;
    };
    turn.result = generator_.run(request);
    emit(decoder.flush());
  } catch (...) {
    messages.erase(messages.end() - 1);
    throw;
  }
  if (answer.empty() && turn.result.finish == Finish::kCancelled) {
    messages.erase(messages.end() - 1);
    return turn;
  }
  turn.message = model_.parse(answer, {}, options_);
  turn.message.erase("complete");
  Json message = {{"role", "assistant"}};
  message.update(turn.message);
  messages.push_back(message);
  turn.message = std::move(message);
  const auto& boundaries = session().boundaries();
  const bool kept = !boundaries.empty() &&
                    boundaries.back().position == session().journal().size() &&
                    boundaries.back().kind == CapsuleKind::kTurn;
  remember(kept ? boundaries.back().capsule : "");
  return turn;
}

// ---- states ----

void Conversation::remember(std::string capsule) {
  here().points.push_back({here().messages.size(), std::move(capsule)});
}

// Makes the slot what it was at the last point. Without its capsule the next question reads the
// messages again.
void Conversation::return_to_last_point() {
  const auto& points = here().points;
  if (!points.empty() && registry_.has(points.back().capsule)) {
    generator_.session().restore(points.back().capsule);
  } else {
    generator_.session().clear();
  }
}

// Other branches must find their state again: what the present one keeps does not push it out.
void Conversation::pin_heads() {
  for (const std::string& name : std::exchange(pinned_, {})) {
    if (registry_.has(name)) registry_.pin(name, false);
  }
  for (const auto& [name, branch] : branches_) {
    if (name == current_ || branch.points.empty()) continue;
    const std::string& head = branch.points.back().capsule;
    if (!registry_.has(head)) continue;
    registry_.pin(head, true);
    pinned_.push_back(head);
  }
}

void Conversation::save(const std::string& name, const frt_sampling_params& sampling,
                        bool replace) {
  generator_.session().save(name, sampling, {{"messages", messages()}, {"options", options_}},
                            replace);
}

void Conversation::restore(const std::string& name) {
  if (branches_.contains(name)) {
    current_ = name;
    return_to_last_point();
    pin_heads();
    return;
  }
  const auto content = generator_.session().restore(name);
  const Json saved = content->extra.value("messages", Json());
  here() = {saved.is_array() ? saved : Json::array(), {}};
  options_.update(content->extra.value("options", Json::object()));
  remember(name);
  if (!saved.is_array()) {
    throw Error(FRT_ERR_UNSUPPORTED, "capsule '" + name +
                                         "' holds no conversation, only a prompt; go on with it by "
                                         "`frt-host run --from-capsule`");
  }
}

void Conversation::fork(const std::string& name) {
  if (name.empty() || branches_.contains(name)) {
    throw Error(FRT_ERR_EXISTS, "there is a branch '" + name + "' already; /branches lists them");
  }
  branches_[name] = here();
  current_ = name;
  pin_heads();
}

void Conversation::back(uint64_t turns) {
  auto& points = here().points;
  if (turns == 0 || turns > points.size()) {
    throw Error(FRT_ERR_OUT_OF_RANGE, "cannot go " + std::to_string(turns) + " turns back: there " +
                                          "are " + std::to_string(points.size()));
  }
  points.resize(points.size() - turns);
  Json& messages = here().messages;
  std::size_t kept = points.empty() ? 0 : points.back().messages;
  if (points.empty() && !messages.empty() && messages[0]["role"] == "system") kept = 1;
  messages.erase(messages.begin() + static_cast<std::ptrdiff_t>(kept), messages.end());
  return_to_last_point();
}

std::vector<Conversation::BranchView> Conversation::branches() const {
  std::vector<BranchView> views;
  for (const auto& [name, branch] : branches_) {
    BranchView view{.name = name, .current = name == current_};
    for (const Json& message : branch.messages) view.turns += message["role"] == "user";
    const std::string head = branch.points.empty() ? "" : branch.points.back().capsule;
    for (const CapsuleView& capsule : registry_.list()) {
      if (capsule.name == head) view.tokens = capsule.boundary;
    }
    views.push_back(std::move(view));
  }
  return views;
}

}  // namespace frt::host
