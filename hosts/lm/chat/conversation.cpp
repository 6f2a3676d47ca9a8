// SPDX-License-Identifier: Apache-2.0
// The whole conversation is rendered for every question; the engine feeds only what neither the
// slot nor a capsule holds, as far as the rendering continues what was fed.
//
// Every change is made on a copy of the branch, which takes the branch's place when nothing can
// fail any more. The slot may then hold something else: in_step_ says so.
#include "lm/chat/conversation.hpp"

#include <algorithm>
#include <frt/io/file.hpp>
#include <frt/io/json.hpp>
#include <frt/io/json_text.hpp>
#include <frt/io/utf8.hpp>
#include <set>
#include <utility>

#include "lm/chat/parting_point.hpp"

namespace frt::host {

using Json = nlohmann::ordered_json;

namespace {

// A capsule holds the messages some levels deeper, and must be readable, too.
constexpr io::JsonLimits kImportLimits{.depth = 96};

void require_utf8(const std::string& text, const char* what) {
  if (io::is_utf8(text)) return;
  throw Error(FRT_ERR_INVALID_ARGUMENT,
              std::string(what) + " is not valid UTF-8; send text in UTF-8");
}

const std::string kAffinity = "conversation";
const std::string kOwner;  // nobody's in particular

bool is_question(const Json& message) {
  return message["role"] == "user";
}

}  // namespace

Conversation::Conversation(const LmModel& model, Engine& engine, Json options)
    : model_(model), engine_(engine), options_(std::move(options)), current_("main") {
  branches_[current_];
}

Conversation::~Conversation() {
  for (const std::string& name : pinned_) {
    try {
      with_state([&](Session&, CapsuleRegistry& registry) {
        if (registry.has(name)) registry.pin(name, false);
      });
    } catch (const std::exception&) {
      // It stays pinned: that keeps a file, and loses nothing.
    }
  }
}

// Runs `work` on the engine's thread, which alone uses slot and capsules.
template <class Work>
void Conversation::with_state(const Work& work) const {
  engine_.call([&](EngineAccess& access) {
    Session* session = access.claim_session(kOwner, kAffinity, nullptr);
    if (!session) throw Error(FRT_ERR_BAD_STATE, "the conversation's slot is used by a request");
    work(*session, *access.registry());
  });
}

uint64_t Conversation::tokens() const {
  uint64_t tokens = 0;
  with_state([&](const Session& session, CapsuleRegistry&) { tokens = session.journal().size(); });
  return tokens;
}

Json Conversation::Branch::whole() const {
  Json all = messages;
  if (!system.is_null()) all.insert(all.begin(), system);
  return all;
}

// Throws what the format says if it cannot go on from these messages.
void Conversation::require_renderable(Json messages, const Json& options) const {
  messages.push_back({{"role", "user"}, {"content", "?"}});
  model_.render(messages, {}, options);
}

// Messages from outside as a branch. `source` names them in errors.
Conversation::Branch Conversation::branch_of(const std::string& source, const Json& messages,
                                             const Json& options) const {
  Branch branch;
  if (!messages.is_array()) {
    throw Error(FRT_ERR_FORMAT, source + ": not a list of messages as /export writes it");
  }
  for (const Json& message : messages) {
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string()) {
      throw Error(FRT_ERR_FORMAT, source + ": message " + std::to_string(&message - &messages[0]) +
                                      " is no object with a role, as /export writes it");
    }
  }
  require_renderable(messages, options);
  branch.messages = messages;
  if (!messages.empty() && messages[0]["role"] == "system") {
    branch.system = messages[0];
    branch.messages.erase(branch.messages.begin());
  }
  for (std::size_t i = 0; i < branch.messages.size(); ++i) {
    if (is_question(branch.messages[i])) branch.rounds.push_back({i, ""});
  }
  return branch;
}

void Conversation::set_system(const std::string& text) {
  require_utf8(text, "the system message");
  Branch next = here();
  next.system = text.empty() ? Json() : Json{{"role", "system"}, {"content", text}};
  require_renderable(next.whole(), options_);
  for (Round& round : next.rounds) round.capsule.clear();  // states of another prompt
  here() = std::move(next);
  in_step_ = false;
}

void Conversation::reset() {
  Branch next;
  next.system = here().system;
  here() = std::move(next);
  in_step_ = false;
}

void Conversation::export_branch(const std::string& name, const std::string& path,
                                 io::Rights rights) {
  Branch& branch = branches_.at(name);
  io::write_file_atomically(path, io::json_text(branch.whole(), {.indent = 2}) + "\n", rights);
  branch.unsaved = false;
}

std::string Conversation::import_from(const std::string& path) {
  std::string aside =
      replace_here(branch_of(path, io::read_json_file(path, kImportLimits), options_));
  in_step_ = false;
  return aside;
}

// Returns the branch that now holds what no file did, or an empty name.
std::string Conversation::replace_here(Branch next) {
  std::string aside;
  if (here().unsaved) {
    // No capsule's name either: /restore would not find that capsule any more.
    with_state([&](Session&, CapsuleRegistry& registry) {
      for (int i = 2; aside.empty() || branches_.contains(aside) || registry.has(aside); ++i) {
        aside = current_ + "-" + std::to_string(i);
      }
    });
    branches_.emplace(aside, here());
    try {
      pin_heads();
    } catch (...) {
      branches_.erase(aside);
      throw;
    }
  }
  here() = std::move(next);
  return aside;
}

Conversation::Turn Conversation::ask(const std::string& text, EngineRequest request,
                                     GenerationReader reader,
                                     const std::function<bool(const std::string&)>& show) {
  require_utf8(text, "the message");
  Branch next = here();
  next.rounds.push_back({next.messages.size(), ""});
  next.messages.push_back({{"role", "user"}, {"content", text}});
  const Json asked = next.whole();
  const ChatPrompt prompt = model_.render(asked, {}, options_);
  request.prompt = model_.encode(prompt);
  request.keep = true;
  request.owner = kOwner;
  request.affinity = kAffinity;
  request.user_turn = parting_point(model_, asked, {}, options_, prompt, request.prompt);
  Turn turn;
  std::string answer;
  TextStream decoder(model_, FRT_DECODE_SKIP_SPECIAL);
  const auto emit = [&](const std::string& piece) {
    answer += piece;
    return piece.empty() || show(piece);
  };
  reader.on_token = [&](int32_t id) { return emit(decoder.push(id)); };
  in_step_ = false;
  turn.result = generate(engine_, request, reader);
  turn.result.prefix.reason = prefix_reason(turn.result.prefix, request.prompt, model_);
  emit(decoder.flush());
  if (answer.empty() && turn.result.finish == Finish::kCancelled) return turn;

  turn.message = {{"role", "assistant"}};
  Json parsed = model_.parse(answer, {}, options_);
  parsed.erase("complete");
  turn.message.update(parsed);
  next.messages.push_back(turn.message);
  with_state([&](const Session& session, CapsuleRegistry&) {
    const auto& boundaries = session.boundaries();
    if (!boundaries.empty() && boundaries.back().position == session.journal().size() &&
        boundaries.back().kind == CapsuleKind::kTurn) {
      next.rounds.back().capsule = boundaries.back().capsule;
    }
  });
  next.unsaved = true;
  here() = std::move(next);
  in_step_ = true;
  return turn;
}

// ---- states ----

// Makes the slot what it was behind the last round. Without its capsule the next question reads
// the messages again.
void Conversation::return_to_last_round() {
  in_step_ = false;
  const auto& rounds = here().rounds;
  with_state([&](Session& session, CapsuleRegistry& registry) {
    try {
      if (!rounds.empty() && registry.has(rounds.back().capsule)) {
        session.restore(rounds.back().capsule);
        return;
      }
    } catch (const Error& error) {
      if (error.status() == FRT_ERR_DEVICE_LOST) throw;
    }
    session.clear();
  });
  in_step_ = true;
}

// Other branches must find their state again: what the present one keeps does not push it out. What
// somebody pinned before stays theirs.
void Conversation::pin_heads() {
  with_state([&](Session&, CapsuleRegistry& registry) {
    while (!pinned_.empty()) {  // one by one: what cannot be unpinned now is unpinned later
      if (registry.has(pinned_.back())) registry.pin(pinned_.back(), false);
      pinned_.pop_back();
    }
    std::set<std::string> pinned;
    for (const CapsuleView& capsule : registry.list()) {
      if (capsule.pinned) pinned.insert(capsule.name);
    }
    for (const auto& [name, branch] : branches_) {
      if (name == current_ || branch.rounds.empty()) continue;
      const std::string& head = branch.rounds.back().capsule;
      if (!registry.has(head) || !pinned.insert(head).second) continue;
      registry.pin(head, true);
      pinned_.push_back(head);
    }
  });
}

void Conversation::save(const std::string& name, const frt_sampling_params& sampling,
                        bool replace) {
  if (!in_step_) return_to_last_round();
  with_state([&](Session& session, CapsuleRegistry& registry) {
    session.save(name, sampling, {{"messages", messages()}, {"options", options_}}, replace);
    here().unsaved = false;
    here().file = name;
    here().written = nullptr;
    here().written = registry.content(name);
  });
}

bool Conversation::owns_file() {
  if (!here().written) return false;
  bool same = false;
  try {
    with_state([&](Session&, CapsuleRegistry& registry) {
      same = content_to_text(registry.content_of_file(here().file)) ==
             content_to_text(*here().written);
    });
  } catch (const Error&) {
    return false;  // it is gone, or not to be read: what is there is not ours
  }
  return same;
}

std::string Conversation::restore(const std::string& name) {
  if (name == current_ && in_step_) return {};
  if (branches_.contains(name)) {
    const std::string before = std::exchange(current_, name);
    try {
      return_to_last_round();
      pin_heads();
    } catch (...) {
      current_ = before;
      in_step_ = false;
      throw;
    }
    return {};
  }
  Json extra;
  with_state([&](Session&, CapsuleRegistry& registry) { extra = registry.content(name)->extra; });
  if (!extra.is_object() || !extra.contains("messages")) {
    throw Error(FRT_ERR_UNSUPPORTED, "capsule '" + name +
                                         "' holds no conversation, only a prompt; go on with it by "
                                         "`frt-host run --from-capsule`");
  }
  Json options = options_;
  // A file says how its conversation was rendered; everything else is for the person here to say.
  if (const auto saved = extra.find("options"); saved != extra.end() && saved->is_object()) {
    for (const char* key : {"enable_thinking", "preserve_thinking"}) {
      const Json value = saved->value(key, Json());
      if (value.is_boolean()) options[key] = value;
    }
  }
  Branch next = branch_of("capsule '" + name + "'", extra["messages"], options);
  if (!next.rounds.empty()) next.rounds.back().capsule = name;
  next.file = name;
  in_step_ = false;
  with_state([&](Session& session, CapsuleRegistry&) { next.written = session.restore(name); });
  std::string aside = replace_here(std::move(next));
  options_ = std::move(options);
  in_step_ = true;
  return aside;
}

void Conversation::fork(const std::string& name) {
  require_utf8(name, "the name");
  if (name.empty() || branches_.contains(name)) {
    throw Error(FRT_ERR_EXISTS, "there is a branch '" + name + "' already; /branches lists them");
  }
  branches_.emplace(name, here());
  const std::string before = std::exchange(current_, name);
  try {
    pin_heads();
  } catch (...) {
    current_ = before;
    branches_.erase(name);
    throw;
  }
}

void Conversation::back(uint64_t turns) {
  Branch next = here();
  if (turns == 0 || turns > next.rounds.size()) {
    throw Error(FRT_ERR_OUT_OF_RANGE, "cannot go " + std::to_string(turns) + " turns back: there " +
                                          "are " + std::to_string(next.rounds.size()));
  }
  const std::size_t first = next.rounds.size() - turns;
  const auto cut = static_cast<std::ptrdiff_t>(next.rounds[first].begin);
  next.messages.erase(next.messages.begin() + cut, next.messages.end());
  next.rounds.resize(first);
  here() = std::move(next);
  return_to_last_round();
}

std::vector<Conversation::BranchView> Conversation::branches() const {
  std::vector<CapsuleView> capsules;
  try {
    with_state([&](Session&, CapsuleRegistry& registry) { capsules = registry.list(); });
  } catch (const Error&) {
    capsules.clear();  // the device is lost, and every state
  }
  std::vector<BranchView> views;
  for (const auto& [name, branch] : branches_) {
    BranchView view{.name = name,
                    .current = name == current_,
                    .turns = branch.rounds.size(),
                    .unsaved = branch.unsaved,
                    .file = branch.file};
    const std::string head = branch.rounds.empty() ? "" : branch.rounds.back().capsule;
    for (const CapsuleView& capsule : capsules) {
      if (capsule.name == head) view.tokens = capsule.boundary;
    }
    views.push_back(std::move(view));
  }
  return views;
}

}  // namespace frt::host
