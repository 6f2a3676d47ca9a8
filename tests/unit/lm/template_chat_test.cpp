// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <filesystem>
#include <frt/error.hpp>
#include <frt/lm/template_chat.hpp>
#include <frt/models/json.hpp>
#include <fstream>
#include <string>

#include "../scratch_folder.hpp"

using frt::Error;
using frt::lm::TemplateChat;
using frt::models::Json;
namespace fs = std::filesystem;

namespace {

class Folder : public frt::test::ScratchFolder {
 public:
  void write(const char* name, const std::string& text) const {
    fs::create_directories((path / name).parent_path());
    std::ofstream(path / name, std::ios::binary) << text;
  }
  // What `template` of tokenizer_config.json gives.
  TemplateChat with(const Json& chat_template) const {
    write("tokenizer_config.json", Json{{"bos_token", {{"content", "<s>"}}},
                                        {"eos_token", "</s>"},
                                        {"chat_template", chat_template}}
                                       .dump());
    return TemplateChat(path, "");
  }
};

const Json kAsked = Json::array({{{"role", "user"}, {"content", "hi"}}});
const Json kTools = Json::array({{{"type", "function"}, {"function", {{"name", "f"}}}}});

std::string text(const TemplateChat& chat, const Json& messages = kAsked, const Json& tools = {},
                 const Json& options = {}) {
  return chat.render(messages, tools, options).text();
}

std::string refusal(const TemplateChat& chat, const Json& messages = kAsked, const Json& tools = {},
                    const Json& options = {}) {
  try {
    chat.render(messages, tools, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("a checkpoint's template is found wherever transformers looks for it") {
  const Folder folder;
  CHECK(text(folder.with("A{{ messages[0].content }}{{ bos_token }}{{ eos_token }}")) ==
        "Ahi<s></s>");
  const Json named = Json::array({{{"name", "default"}, {"template", "D"}},
                                  {{"name", "tool_use"}, {"template", "T{{ tools|length }}"}}});
  CHECK(text(folder.with(named)) == "D");
  CHECK(text(folder.with(named), kAsked, kTools) == "T1");
  folder.write("additional_chat_templates/tool_use.jinja", "M{{ tools|length }}");
  CHECK(text(folder.with("D"), kAsked, kTools) == "M1");
  folder.write("chat_template.jinja", "F");
  CHECK(text(folder.with("D")) == "F");
  folder.write("given.jinja", "G");
  CHECK(text(TemplateChat(folder.path, (folder.path / "given.jinja").string())) == "G");
}

TEST_CASE("tokens that only special_tokens_map.json names are variables, too") {
  const Folder folder;
  folder.write("special_tokens_map.json", R"({"bos_token": "<no>", "pad_token": "<pad>"})");
  CHECK(text(folder.with("{{ bos_token }}{{ pad_token }}{{ unk_token }}")) == "<s><pad>");
}

TEST_CASE("without a template conversations are refused, naming the folder and the option") {
  const Folder folder;
  const std::string what = refusal(TemplateChat(folder.path, ""));
  CHECK(what.find(folder.path.string() + " has no chat template") == 0);
  CHECK(what.find("option chat_template") != std::string::npos);
  CHECK(what.find("without --chat") != std::string::npos);
}

TEST_CASE("a broken template is an error of the conversation, not of the load") {
  const Folder folder;
  CHECK(refusal(folder.with("{% if %}")).find("tokenizer_config.json, line 1: unexpected") !=
        std::string::npos);
  CHECK(refusal(folder.with(7)).find("chat_template: expected a text, or a list") !=
        std::string::npos);
  CHECK(refusal(TemplateChat(folder.path, "/no/such/file")).find("/no/such/file") !=
        std::string::npos);
}

TEST_CASE("what a template says of a conversation names no file: it goes to whoever sent it") {
  const Folder folder;
  folder.write(
      "chat_template.jinja",
      "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
      "{{ raise_exception('roles must alternate') }}{% endif %}{{ m.content }}{% endfor %}");
  const TemplateChat chat(folder.path, "");
  CHECK(text(chat) == "hi");
  const Json twice = Json::array({kAsked[0], kAsked[0]});
  CHECK(refusal(chat, twice) ==
        "chat template, line 1: it refuses the conversation: roles must alternate");
  // A bound is the template's own fault: that is for the log.
  folder.write("chat_template.jinja", "{{ 'a' * 9999999999 }}");
  CHECK(refusal(TemplateChat(folder.path, "")).find(folder.path.string()) != std::string::npos);
}

TEST_CASE("options reach the template; what is not given is undefined") {
  const Folder folder;
  const TemplateChat chat =
      folder.with("{{ add_generation_prompt }}{{ enable_thinking is defined }}");
  CHECK(text(chat) == "TrueFalse");
  CHECK(text(chat, kAsked, {}, {{"enable_thinking", false}, {"add_generation_prompt", false}}) ==
        "FalseTrue");
  CHECK(refusal(chat, kAsked, {}, {{"thinking", true}}).find("unknown chat option") == 0);
}

TEST_CASE("contents and arguments reach the template as it is written for") {
  const Folder folder;
  const TemplateChat chat = folder.with(
      "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}{{ "
      "c.function.arguments|tojson }}{% endfor %}{% endfor %}");
  const Json parts =
      Json::parse(R"([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])");
  const auto call = [](const char* arguments) {
    return Json::array(
        {{{"role", "assistant"},
          {"content", "c"},
          {"tool_calls",
           {{{"type", "function"}, {"function", {{"name", "f"}, {"arguments", arguments}}}}}}}});
  };
  CHECK(text(chat, Json::array({{{"role", "user"}, {"content", parts}}})) == "ab");
  CHECK(text(chat, call("{\"x\":1}")) == "c{\"x\": 1}");
  CHECK(text(chat, call("")) == "c{}");
  CHECK(refusal(chat, call("{")).find("arguments of a tool call in message 0") == 0);
}

TEST_CASE("what a template has no place for is refused with the message's index") {
  const Folder folder;
  const TemplateChat chat = folder.with("{{ messages[0].content }}");
  // The words reach clients of a server: no path.
  CHECK(refusal(chat, kAsked, kTools) ==
        "the chat template of this model has no place for tools; give none");
  CHECK(refusal(chat, Json::array()).find("there are no messages") == 0);
  const Json image = Json::parse(
      R"([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])");
  CHECK(refusal(chat, image).find("message 0: a part") == 0);
  CHECK(refusal(chat, Json::array({kAsked[0], {{"role", "root"}, {"content", "x"}}}))
            .find("message 1: unknown role") == 0);
}

TEST_CASE("only with allow_special_tokens a content writes what the format writes") {
  const Folder folder;
  const TemplateChat chat = folder.with("<a>{{ messages[0].content }}<b>");
  const auto prompt = chat.render(kAsked, {}, {});
  REQUIRE(prompt.plain().size() == 1);
  CHECK(prompt.plain()[0].begin == 3);
  CHECK(prompt.plain()[0].end == 5);
  CHECK(chat.render(kAsked, {}, {{"allow_special_tokens", true}}).plain().empty());
}
