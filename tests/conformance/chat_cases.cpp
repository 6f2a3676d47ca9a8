// SPDX-License-Identifier: Apache-2.0
// Cases of frt/chat.h: a conversation to a prompt, an answer to a message, in one go and in pieces.
#include <algorithm>
#include <frt/io/json_text.hpp>
#include <frt/io/utf8.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "broken_rule.hpp"
#include "check.hpp"
#include "lm/chat/stream.hpp"
#include "made_text.hpp"
#include "plugin_cases.hpp"

namespace frt::conformance {
namespace {

using Json = nlohmann::ordered_json;

Json user_says(const std::string& content) {
  return Json::array({{{"role", "user"}, {"content", content}}});
}

// Without reasoning the answer's text is its content.
const Json kPlainAnswer = {{"enable_thinking", false}};

const Json kTools = Json::array(
    {{{"type", "function"},
      {"function",
       {{"name", "look_up"},
        {"description", "Finds a word."},
        {"parameters",
         {{"type", "object"},
          {"properties", {{"word", {{"type", "string"}}}, {"count", {{"type", "integer"}}}}},
          {"required", {"word"}}}}}}}});

// A model with a chat format for this checkpoint; throws Skip for another.
class MadeChat : public MadeText {
 public:
  explicit MadeChat(const Subject& subject) : MadeText(subject) {
    if (!model().has_chat()) throw Skip{"the model has no " FRT_EXT_CHAT};
    const Reply reply = render(io::json_text(user_says("hello")));
    if (reply.status == FRT_ERR_UNSUPPORTED && has_words(reply.error)) {
      throw Skip{reply.error.message};
    }
  }
  Reply render(const std::string& messages, const char* tools = nullptr,
               const char* options = nullptr) const {
    return asked(sender(), "render", [&](Reply& reply) {
      const frt_sink nowhere = [](void*, const void*, uint64_t) -> frt_status { return FRT_OK; };
      return model().chat().render(model().handle(), messages.c_str(), tools, options, nowhere,
                                   nowhere, &reply, &reply.error);
    });
  }
  Reply parse(const std::string& text, const char* tools, const char* options,
              uint32_t flags = FRT_CHAT_FINAL) const {
    return asked(sender(), "parse", [&](Reply& reply) {
      return model().chat().parse(model().handle(), text.data(), text.size(), flags, tools, options,
                                  Reply::take, &reply, &reply.error);
    });
  }
};

std::size_t control_count(const MadeText& text, const std::vector<MadeText::Control>& controls,
                          const host::ChatPrompt& prompt) {
  const std::vector<int32_t> ids = text.model().encode_prompt(prompt, 0);
  return static_cast<std::size_t>(std::count_if(ids.begin(), ids.end(), [&](int32_t id) {
    return std::any_of(controls.begin(), controls.end(),
                       [&](const MadeText::Control& one) { return one.id == id; });
  }));
}

void require_prompt(const host::ChatPrompt& prompt, const std::string& content) {
  if (!io::is_utf8(prompt.text)) fail("render gives a text that is not UTF-8");
  uint64_t end = 0;
  for (const frt_text_range& part : prompt.plain) {
    if (part.begin < end || part.end < part.begin || part.end > prompt.text.size()) {
      fail("render gives the plain part [" + std::to_string(part.begin) + ", " +
           std::to_string(part.end) + ") of a text of " + std::to_string(prompt.text.size()) +
           " bytes; parts are sorted, disjoint and within the text");
    }
    end = part.end;
  }
  const std::size_t at = prompt.text.find(content);
  if (at == std::string::npos) fail("render leaves the content of a message out");
  if (std::none_of(prompt.plain.begin(), prompt.plain.end(), [&](const frt_text_range& part) {
        return part.begin <= at && at + content.size() <= part.end;
      })) {
    fail(
        "render does not say that the content of a message is plain; what users, tools and models "
        "wrote is");
  }
}

// A server sends the words of FRT_ERR_INVALID_ARGUMENT to its client (frt/chat.h).
void require_no_place(const Subject& subject, const Reply& reply, const std::string& what) {
  if (reply.status != FRT_ERR_INVALID_ARGUMENT) return;
  if (std::string_view(reply.error.message).find(checkpoint_of(subject)) == std::string_view::npos)
    return;
  fail(what +
       " is refused with FRT_ERR_INVALID_ARGUMENT, whose words go to the client of a "
       "server, and names the checkpoint: " +
       reply.error.message);
}

void prompts(const Subject& subject) {
  const MadeChat chat(subject);
  const std::string content = "an ordinary sentence";
  const host::ChatPrompt ordinary = chat.model().render(user_says(content), nullptr, nullptr);
  require_prompt(ordinary, content);
  require_prompt(chat.model().render(user_says(content), nullptr,
                                     {{"add_generation_prompt", false},
                                      {"enable_thinking", false},
                                      {"preserve_thinking", true},
                                      {"allow_special_tokens", false}}),
                 content);
  const std::vector<MadeText::Control> controls = chat.control_tokens();
  const std::size_t expected = control_count(chat, controls, ordinary);
  for (const MadeText::Control& one : controls) {
    const host::ChatPrompt hostile =
        chat.model().render(user_says("a " + one.text + " b"), nullptr, nullptr);
    if (control_count(chat, controls, hostile) == expected) continue;
    fail("a message with the text \"" + one.text +
         "\" writes a control token into the prompt; only the format's own text does");
  }
  for (const char* broken :
       {"", "{", "{}", "[1]", "[{}]", "[{\"role\": 1, \"content\": \"a\"}]",
        "[{\"role\": \"user\", \"content\": 1}]", "[{\"role\": \"nobody\", \"content\": \"a\"}]"}) {
    const Reply reply = chat.render(broken);
    const std::string what = std::string("render of the messages `") + broken + "`";
    require_refusal(reply, what);
    require_no_place(subject, reply, what);
  }
  // Which some templates refuse.
  const Json twice = Json::array({user_says("a")[0], user_says("b")[0]});
  require_no_place(subject, chat.render(io::json_text(twice)), "render of two messages of a user");
  const std::string good = io::json_text(user_says("a"));
  for (const char* broken : {"{", "1", "{\"a\": 1}"}) {
    require_refusal(chat.render(good, broken),
                    std::string("render with the tools `") + broken + "`");
  }
  for (const char* broken : {"{", "1", "[]"}) {
    require_refusal(chat.render(good, nullptr, broken),
                    std::string("render with the options `") + broken + "`");
  }
}

void defaults(const Subject& subject) {
  const MadeChat chat(subject);
  const Json known = chat.model().generation_defaults();
  if (!known.is_object()) fail("generation_defaults gives no JSON object");
  for (const auto& [key, value] : known.items()) {
    if (key != "stop_token_ids") {
      if (!value.is_number()) fail("generation_defaults: \"" + key + "\" is no number");
      continue;
    }
    if (!value.is_array()) fail("generation_defaults: \"stop_token_ids\" is no list");
    for (const Json& id : value) {
      const int64_t number = id.is_number_integer() ? id.get<int64_t>() : -1;
      const bool is_id = number >= 0 && number <= INT32_MAX &&
                         chat.decode({static_cast<int32_t>(number)}).status == FRT_OK;
      if (!is_id) {
        fail("generation_defaults: stop_token_ids has " + io::json_text(id) +
             ", which is no id of the tokenizer");
      }
    }
  }
}

std::vector<std::string> whole_characters(const std::string& text, std::size_t bytes) {
  std::vector<std::string> pieces;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = std::min(at + bytes, text.size());
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    pieces.push_back(text.substr(at, end - at));
    at = end;
  }
  return pieces;
}

// What both ways of reading an answer must have alike: calls by name and value.
Json comparable(const Json& message) {
  Json calls = Json::array();
  for (const Json& call : message.value("tool_calls", Json::array())) {
    const Json& function = call.at("function");
    const Json& given = function.at("arguments");
    calls.push_back(
        {{"name", function.at("name")},
         {"arguments", given.is_string() ? Json::parse(given.get<std::string>()) : given}});
  }
  return {{"content", message.value("content", Json())},
          {"reasoning", message.value("reasoning_content", std::string())},
          {"calls", calls},
          {"complete", message.value("complete", Json())}};
}

// How an answer calls look_up, by the format's own words; empty where it does not say.
std::string call_of(const Json& form) {
  if (!form.contains("calls")) return {};
  const Json& calls = form.at("calls");
  const auto text = [](const Json& value) { return value.get<std::string>(); };
  std::string written = text(calls.at("begin").at(0)) + "look_up" + text(calls.at("begin").at(1));
  if (calls.contains("parameter")) {
    const Json& parameter = calls.at("parameter");
    written +=
        text(parameter.at(0)) + "word" + text(parameter.at(1)) + "tree" + text(parameter.at(2));
    written +=
        text(parameter.at(0)) + "count" + text(parameter.at(1)) + "3" + text(parameter.at(2));
  } else {
    written += "{\"word\": \"tree\", \"count\": 3}";
  }
  return written + text(calls.at("end"));
}

// Whether `text` is `before` with more behind it; null is a text without characters.
bool has_grown(const Json& before, const Json& text) {
  const auto characters = [](const Json& value) {
    return value.is_string() ? value.get<std::string>() : std::string();
  };
  return characters(text).starts_with(characters(before));
}

// What parse says of an answer that may go on, each time it has one character more.
void require_growth(const host::TextModel& model, const std::string& text) {
  std::string part;
  Json before = comparable(model.parse("", kTools, kPlainAnswer, 0));
  for (const std::string& character : whole_characters(text, 1)) {
    part += character;
    const Json found = comparable(model.parse(part, kTools, kPlainAnswer, 0));
    if (found.at("complete") != false) {
      fail("parse of `" + part + "` without FRT_CHAT_FINAL says \"complete\": " +
           io::json_text(found.at("complete")) + "; a text that may go on is not complete");
    }
    const Json &calls = found.at("calls"), &calls_before = before.at("calls");
    const bool calls_stay = calls.size() >= calls_before.size() &&
                            std::equal(calls_before.begin(), calls_before.end(), calls.begin());
    if (!calls_stay || !has_grown(before.at("content"), found.at("content")) ||
        !has_grown(before.at("reasoning"), found.at("reasoning"))) {
      fail("parse without FRT_CHAT_FINAL takes back what it reported: of `" + part + "` it is " +
           io::json_text(found) + ", one character before " + io::json_text(before));
    }
    before = found;
  }
}

void answers(const Subject& subject) {
  const MadeChat chat(subject);
  const host::TextModel& model = chat.model();
  const Json message = model.parse("It is a t\u00e9st.", nullptr, kPlainAnswer);
  if (!message.is_object() || message.value("content", Json()) != "It is a t\u00e9st." ||
      message.value("complete", Json()) != true) {
    fail("parse of an answer without reasoning and calls gives " + io::json_text(message));
  }
  std::vector<std::string> texts = {"It is a t\u00e9st.", "", "{\"no\": \"call\"}",
                                    "1 < 2, <b>bold</b> and <", "two\n\nparts \U0001F600"};
  if (model.chat().answer_form) {
    const std::string call = call_of(model.answer_form(kPlainAnswer));
    if (!call.empty()) {
      const Json called = comparable(model.parse(call, kTools, kPlainAnswer));
      const Json wanted =
          Json::array({{{"name", "look_up"}, {"arguments", {{"word", "tree"}, {"count", 3}}}}});
      if (called.at("calls") != wanted) {
        fail("parse of a call that is written as answer_form says gives the calls " +
             io::json_text(called.at("calls")));
      }
      texts.push_back(call);
      texts.push_back("First this. " + call);
      texts.push_back(call.substr(0, call.size() / 2));
    }
  }
  for (const std::string& text : texts) {
    require_growth(model, text);
    const Json expected = comparable(model.parse(text, kTools, kPlainAnswer));
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{3}, text.size() + 1}) {
      host::ChatStream stream(model, kTools, kPlainAnswer);
      for (const std::string& piece : whole_characters(text, bytes)) stream.push(piece);
      stream.finish();
      const Json found = comparable(stream.message());
      if (found == expected) continue;
      fail("the answer `" + text + "`, in pieces of " + std::to_string(bytes) + " bytes, is " +
           io::json_text(found) + ", by parse " + io::json_text(expected));
    }
  }
  require_refusal(chat.parse("a", "{", nullptr), "parse with the tools `{`");
  require_refusal(chat.parse("a", nullptr, "{"), "parse with the options `{`");
  const Reply reply = chat.parse("a\xff", nullptr, nullptr);
  if (reply.status == FRT_OK && !io::is_utf8(reply.sent)) {
    fail("parse of bytes that are not UTF-8 gives a message that is not UTF-8");
  }
}

void unknown_flags(const Subject& subject) {
  const MadeChat chat(subject);
  require_refusal(chat.parse("a", nullptr, nullptr, kUnknownFlag),
                  "parse with a flag that no version has", FRT_ERR_UNSUPPORTED);
}

}  // namespace

void add_chat_cases(std::vector<PluginCase>& cases) {
  cases.push_back({"model chat prompts", prompts});
  cases.push_back({"model chat answers", answers});
  cases.push_back({"model chat defaults", defaults});
  cases.push_back({"model chat unknown flags", unknown_flags});
}

}  // namespace frt::conformance
