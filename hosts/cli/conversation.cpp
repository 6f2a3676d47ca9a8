// SPDX-License-Identifier: Apache-2.0
// The whole conversation is rendered for every question; the generator feeds only what the slot
// has not seen, as far as the rendering continues what was fed.
#include "cli/conversation.hpp"

#include <fstream>
#include <utility>

namespace frt::host {

using Json = nlohmann::ordered_json;

Conversation::Conversation(const LmModel& model, Json options)
    : model_(model), generator_(model, 0), options_(std::move(options)) {}

void Conversation::set_system(const std::string& text) {
  const bool has_system = !messages_.empty() && messages_[0]["role"] == "system";
  if (has_system) messages_.erase(messages_.begin());
  if (!text.empty()) {
    messages_.insert(messages_.begin(), Json{{"role", "system"}, {"content", text}});
  }
}

void Conversation::reset() {
  const bool has_system = !messages_.empty() && messages_[0]["role"] == "system";
  messages_.erase(messages_.begin() + (has_system ? 1 : 0), messages_.end());
}

void Conversation::save(const std::string& path) const {
  std::ofstream file(path);
  file << messages_.dump(2) << "\n";
  file.close();
  if (!file) throw Error(FRT_ERR_IO, "cannot write " + path + "; choose another file");
}

void Conversation::load(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Error(FRT_ERR_IO, "cannot read " + path);
  Json messages = Json::parse(file, nullptr, false);
  if (!messages.is_array()) {
    throw Error(FRT_ERR_FORMAT, path + ": not a list of messages as /save writes it");
  }
  if (!messages.empty()) {
    // Refuses what the format cannot say, before the present conversation is given up.
    Json probe = messages;
    probe.push_back({{"role", "user"}, {"content", "?"}});
    model_.render(probe, {}, options_);
  }
  messages_ = std::move(messages);
}

Conversation::Turn Conversation::ask(const std::string& text, GenerationRequest request,
                                     const std::function<void(const std::string&)>& show,
                                     const std::function<bool()>& cancelled) {
  messages_.push_back({{"role", "user"}, {"content", text}});
  Turn turn;
  std::string answer;
  try {
    request.prompt = model_.encode(model_.render(messages_, {}, options_));
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
    messages_.erase(messages_.end() - 1);
    throw;
  }
  if (answer.empty() && turn.result.finish == Finish::kCancelled) {
    messages_.erase(messages_.end() - 1);
    return turn;
  }
  turn.message = model_.parse(answer, {}, options_);
  turn.message.erase("complete");
  Json message = {{"role", "assistant"}};
  message.update(turn.message);
  messages_.push_back(message);
  turn.message = std::move(message);
  return turn;
}

}  // namespace frt::host
