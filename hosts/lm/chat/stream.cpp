// SPDX-License-Identifier: Apache-2.0
// Events come from the model's plugin, so each is checked against what came before. A format
// without streaming functions is parsed again and again, whenever the text has grown by an eighth:
// the sum of the lengths is linear in the last one, and its messages only grow (frt/chat.h).
#include "lm/chat/stream.hpp"

#include <frt/error.hpp>
#include <frt/io/json.hpp>
#include <frt/io/json_text.hpp>
#include <frt/io/utf8.hpp>
#include <frt/role/contracts.hpp>

#include <exception>
#include <utility>

namespace frt::host {

using Json = nlohmann::ordered_json;

class ChatStream::Source {
 public:
  virtual ~Source() = default;
  virtual std::vector<ChatEvent> push(std::string_view text) = 0;
  // Also whether the answer is complete.
  virtual std::pair<std::vector<ChatEvent>, bool> finish() = 0;
};

class ChatStream::TableSource final : public Source {
 public:
  TableSource(const TextModel& model, const Json& tools, const Json& options)
      : table_(model.chat()), sender_(model.sender()) {
    const std::string tools_text = tools.is_null() ? std::string() : io::json_text(tools);
    const std::string options_text = options.is_null() ? std::string() : io::json_text(options);
    frt_error error{};
    const frt_status status =
        table_.stream_create(model.handle(), tools.is_null() ? nullptr : tools_text.c_str(),
                             options.is_null() ? nullptr : options_text.c_str(), &stream_, &error);
    check(status, error, sender_);
  }
  ~TableSource() override { table_.stream_destroy(stream_); }
  TableSource(const TableSource&) = delete;
  TableSource& operator=(const TableSource&) = delete;

  std::vector<ChatEvent> push(std::string_view text) override {
    return taken([&](void* user, frt_error* error) {
      return table_.stream_push(stream_, text.data(), text.size(), take, user, error);
    });
  }

  std::pair<std::vector<ChatEvent>, bool> finish() override {
    uint32_t complete = 0;
    std::vector<ChatEvent> events = taken([&](void* user, frt_error* error) {
      return table_.stream_finish(stream_, take, user, &complete, error);
    });
    return {std::move(events), complete != 0};
  }

 private:
  struct Taken {
    const std::string& sender;
    std::vector<ChatEvent> events;
    std::exception_ptr failure;
  };

  // `call` gives its events to take().
  template <class Call>
  std::vector<ChatEvent> taken(Call&& call) {
    Taken taken{sender_, {}, {}};
    frt_error error{};
    const frt_status status = call(&taken, &error);
    if (taken.failure) std::rethrow_exception(taken.failure);
    check(status, error, sender_);
    return std::move(taken.events);
  }

  static frt_status take(void* user, const frt_chat_event* given) noexcept {
    auto& taken = *static_cast<Taken*>(user);
    try {
      const auto event = read_table<frt_chat_event>(given, taken.sender);
      if (event.kind > FRT_CHAT_CALL_END || (event.bytes > 0 && !event.text)) {
        throw Error(FRT_ERR_MISMATCH, taken.sender + ": its chat format gives an event of kind " +
                                          std::to_string(event.kind) + " that cannot be read");
      }
      taken.events.push_back({static_cast<ChatEvent::Kind>(event.kind), event.call,
                              std::string(event.text ? event.text : "", event.bytes),
                              (event.flags & FRT_CHAT_UNFINISHED) != 0});
      return FRT_OK;
    } catch (...) {
      taken.failure = std::current_exception();
      return FRT_ERR_CALLBACK;
    }
  }

  frt_chat_v1 table_;
  std::string sender_;
  frt_chat_stream stream_ = nullptr;
};

static_assert(ChatEvent::kReasoning == FRT_CHAT_REASONING && ChatEvent::kText == FRT_CHAT_TEXT &&
              ChatEvent::kToolBegin == FRT_CHAT_CALL_BEGIN &&
              ChatEvent::kToolArguments == FRT_CHAT_CALL_ARGUMENTS &&
              ChatEvent::kToolEnd == FRT_CHAT_CALL_END);

class ChatStream::ParsingSource final : public Source {
 public:
  ParsingSource(const TextModel& model, Json tools, Json options)
      : model_(model), tools_(std::move(tools)), options_(std::move(options)) {
    parse(0);  // refuses options that the format does not have
  }

  std::vector<ChatEvent> push(std::string_view text) override {
    text_ += text;
    if (text_.size() < next_) return {};
    next_ = text_.size() + text_.size() / 8;
    return parse(0);
  }

  std::pair<std::vector<ChatEvent>, bool> finish() override {
    std::vector<ChatEvent> events = parse(FRT_CHAT_FINAL);
    return {std::move(events), complete_};
  }

 private:
  std::vector<ChatEvent> parse(uint32_t flags) {
    const Json message = model_.parse(text_, tools_, options_, flags);
    if (!message.is_object()) refuse("is no object");
    std::vector<ChatEvent> events;
    add_growth(events, message, "reasoning_content", ChatEvent::kReasoning, reasoning_);
    add_growth(events, message, "content", ChatEvent::kText, content_);
    if (const auto calls = message.find("tool_calls"); calls != message.end()) {
      if (!calls->is_array() || calls->size() < calls_) refuse("has fewer tool_calls than before");
      for (; calls_ < calls->size(); ++calls_) add_call(events, (*calls)[calls_]);
    }
    complete_ = message.value("complete", Json()) == true;
    return events;
  }

  void add_growth(std::vector<ChatEvent>& events, const Json& message, const char* key,
                  ChatEvent::Kind kind, std::string& before) const {
    const auto found = message.find(key);
    if (found == message.end() || found->is_null()) return;
    if (!found->is_string()) refuse(std::string(key) + " is no text");
    const auto& now = found->get_ref<const std::string&>();
    if (!now.starts_with(before)) refuse(std::string(key) + " did not only grow");
    if (now.size() > before.size()) {
      events.push_back({kind, 0, now.substr(before.size()), false});
      before = now;
    }
  }

  void add_call(std::vector<ChatEvent>& events, const Json& call) const {
    const auto function = call.is_object() ? call.find("function") : call.end();
    const auto text = [&](const char* key) -> std::string {
      if (function != call.end() && function->is_object()) {
        const auto found = function->find(key);
        if (found != function->end() && found->is_string()) return found->get<std::string>();
      }
      refuse(std::string("tool_calls has a call without the text ") + key);
    };
    const auto index = static_cast<uint32_t>(calls_);
    events.push_back({ChatEvent::kToolBegin, index, text("name"), false});
    events.push_back({ChatEvent::kToolArguments, index, text("arguments"), false});
    events.push_back({ChatEvent::kToolEnd, index, {}, false});
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(FRT_ERR_MISMATCH,
                model_.sender() + ": the message of its chat format's parse: " + what);
  }

  const TextModel& model_;
  Json tools_, options_;
  std::string text_, content_, reasoning_;
  std::size_t calls_ = 0, next_ = 0;
  bool complete_ = false;
};

ChatStream::ChatStream(const TextModel& model, const Json& tools, const Json& options)
    : sender_(model.sender()), source_(make_source(model, tools, options)) {}

ChatStream::~ChatStream() = default;
ChatStream::ChatStream(ChatStream&&) noexcept = default;
ChatStream& ChatStream::operator=(ChatStream&&) noexcept = default;

std::unique_ptr<ChatStream::Source> ChatStream::make_source(const TextModel& model,
                                                            const Json& tools,
                                                            const Json& options) {
  const frt_chat_v1& table = model.chat();
  const bool streams =
      table.stream_create && table.stream_push && table.stream_finish && table.stream_destroy;
  if (streams) return std::make_unique<TableSource>(model, tools, options);
  return std::make_unique<ParsingSource>(model, tools, options);
}

std::vector<ChatEvent> ChatStream::push(std::string_view text) {
  return checked(source_->push(text));
}

std::vector<ChatEvent> ChatStream::finish() {
  auto [events, complete] = source_->finish();
  events = checked(std::move(events));
  const bool open = !calls_.empty() && !calls_.back().ended;
  if (open) throw Error(FRT_ERR_MISMATCH, sender_ + ": its last tool call has no end");
  complete_ = complete;
  return events;
}

// Calls follow one another: each begins, has its arguments, ends.
std::vector<ChatEvent> ChatStream::checked(std::vector<ChatEvent> events) {
  const auto refuse = [&](const char* what) {
    throw Error(FRT_ERR_MISMATCH, sender_ + ": its chat format reports " + what);
  };
  for (const ChatEvent& event : events) {
    if (!io::is_utf8(event.text)) refuse("a text that is not UTF-8");
    const bool open = !calls_.empty() && !calls_.back().ended;
    if (event.kind == ChatEvent::kReasoning || event.kind == ChatEvent::kText) {
      (event.kind == ChatEvent::kText ? content_ : reasoning_) += event.text;
      continue;
    }
    const bool begins = event.kind == ChatEvent::kToolBegin;
    if (begins == open || event.call + (begins ? 0u : 1u) != calls_.size()) {
      refuse("events of tool calls that do not follow one another");
    }
    if (begins) {
      calls_.push_back({event.text, {}, false});
    } else if (event.kind == ChatEvent::kToolArguments) {
      calls_.back().arguments += event.text;
    } else {
      const std::string what = sender_ + ": a tool call's arguments";
      if (!io::parse_json(calls_.back().arguments, what).is_object()) {
        refuse("arguments of a tool call that are no object");
      }
      calls_.back().ended = true;
    }
  }
  return events;
}

Json ChatStream::message() const {
  Json message = {{"content", content_}};
  if (!reasoning_.empty()) message["reasoning_content"] = reasoning_;
  Json calls = Json::array();
  for (const Call& call : calls_) {
    if (!call.ended) continue;
    calls.push_back(
        {{"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  message["complete"] = complete_;
  return message;
}

}  // namespace frt::host
