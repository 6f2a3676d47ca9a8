// SPDX-License-Identifier: Apache-2.0
#include <frt/lm/template_chat.hpp>

#include <algorithm>
#include <array>
#include <ctime>
#include <frt/error.hpp>
#include <frt/io/file.hpp>
#include <frt/lm/chat_options.hpp>
#include <utility>

namespace frt::lm {

using models::Json;
using models::PromptText;
namespace fs = std::filesystem;

namespace {

constexpr std::size_t kLargestTemplate = std::size_t{1} << 20;
constexpr std::size_t kMostTemplates = 64;

using Templates = std::map<std::string, JinjaTemplate>;

void add(Templates& templates, const std::string& name, std::string_view source,
         const std::string& shown) {
  if (templates.size() >= kMostTemplates) {
    throw Error(FRT_ERR_FORMAT, shown + ": more than " + std::to_string(kMostTemplates) +
                                    " chat templates; remove those that are not needed");
  }
  templates.insert_or_assign(name, JinjaTemplate(source, shown));
}

void add_file(Templates& templates, const std::string& name, const fs::path& file) {
  add(templates, name, io::read_file(file, "chat template", kLargestTemplate), file.string());
}

// "chat_template" of tokenizer_config.json.
void add_member(Templates& templates, const Json& value, const std::string& file) {
  if (value.is_null()) return;
  if (value.is_string()) {
    return add(templates, "default", value.get_ref<const std::string&>(), file);
  }
  const auto wrong = [&]() -> Error {
    return {FRT_ERR_FORMAT,
            file + ": chat_template: expected a text, or a list of {\"name\", \"template\"}"};
  };
  if (!value.is_array()) throw wrong();
  for (const Json& entry : value) {
    const auto text = [&](const char* key) -> const std::string& {
      const auto found = entry.is_object() ? entry.find(key) : entry.end();
      if (found == entry.end() || !found->is_string()) throw wrong();
      return found->get_ref<const std::string&>();
    };
    add(templates, text("name"), text("template"), file + " (" + text("name") + ")");
  }
}

Json read_object(const fs::path& file) {
  if (!fs::exists(file)) return Json::object();
  Json content = io::read_json_file(file);
  if (!content.is_object()) throw Error(FRT_ERR_FORMAT, file.string() + ": expected an object");
  return content;
}

// A token is a text, or {"content": text, ...}.
void add_tokens(const Json& from, Json& tokens) {
  static constexpr std::array<const char*, 7> kNames = {
      "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};
  for (const char* name : kNames) {
    if (!from.contains(name) || tokens.contains(name)) continue;
    const Json& value = from.at(name);
    if (value.is_string()) tokens[name] = value;
    if (!value.is_object()) continue;
    const Json content = value.value("content", Json());
    if (content.is_string()) tokens[name] = content;
  }
}

[[noreturn]] void refuse(std::size_t index, const std::string& what) {
  throw Error(FRT_ERR_INVALID_ARGUMENT, "message " + std::to_string(index) + ": " + what);
}

void check_role(const Json& message, std::size_t index) {
  static constexpr std::array<std::string_view, 4> kRoles = {"system", "user", "assistant", "tool"};
  if (!message.is_object()) refuse(index, "it is no object");
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string()) refuse(index, "it has no role");
  const std::string& name = role->get_ref<const std::string&>();
  if (std::find(kRoles.begin(), kRoles.end(), name) == kRoles.end()) {
    refuse(index, "unknown role " + role->dump() + "; known: system, user, assistant, tool");
  }
}

void join_content(Json& message, std::size_t index) {
  const auto content = message.find("content");
  if (content == message.end() || content->is_null() || content->is_string()) return;
  if (!content->is_array()) refuse(index, "content must be text or a list of parts");
  std::string all;
  for (const Json& part : *content) {
    const auto text = part.is_object() ? part.find("text") : part.end();
    if (text == part.end() || !text->is_string()) {
      refuse(index, "a part of its content is no text; this model takes text only");
    }
    all += text->get_ref<const std::string&>();
  }
  *content = std::move(all);
}

void parse_arguments(Json& message, std::size_t index) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || calls->is_null()) return;
  if (!calls->is_array()) refuse(index, "tool_calls must be a list");
  for (Json& entry : *calls) {
    if (!entry.is_object()) refuse(index, "a tool call is no object");
    const auto inner = entry.find("function");
    Json& call = inner != entry.end() ? *inner : entry;
    if (!call.is_object() || !call.contains("name")) refuse(index, "a tool call has no name");
    const auto arguments = call.find("arguments");
    if (arguments == call.end() || !arguments->is_string()) continue;
    const std::string text = arguments->get<std::string>();
    *arguments =
        strip(text).empty()
            ? Json::object()
            : io::parse_json(text, "arguments of a tool call in message " + std::to_string(index));
  }
}

// All is content.
class Reader final : public ChatReader {
 public:
  void push(std::string_view text, ChatEvents& events) override {
    if (!text.empty()) events.push_back({FRT_CHAT_TEXT, 0, std::string(text), 0});
  }
  bool finish(ChatEvents&) override { return true; }
};

}  // namespace

TemplateChat::TemplateChat(const fs::path& folder, const std::string& file)
    : folder_(folder.string()) {
  try {
    const fs::path config = folder / "tokenizer_config.json";
    const Json content = read_object(config);
    add_tokens(content, tokens_);
    add_tokens(read_object(folder / "special_tokens_map.json"), tokens_);
    if (!file.empty()) {
      add_file(templates_, "default", file);
      return;
    }
    if (const fs::path own = folder / "chat_template.jinja"; fs::exists(own)) {
      add_file(templates_, "default", own);
    } else {
      add_member(templates_, content.value("chat_template", Json()), config.string());
    }
    const fs::path more = folder / "additional_chat_templates";
    if (!fs::is_directory(more)) return;
    for (const auto& entry : fs::directory_iterator(more)) {
      if (entry.path().extension() != ".jinja") continue;
      add_file(templates_, entry.path().stem().string(), entry.path());
    }
  } catch (const Error&) {
    failure_ = std::current_exception();
  }
}

const JinjaTemplate& TemplateChat::choose(bool tools) const {
  if (failure_) std::rethrow_exception(failure_);
  if (tools) {
    if (const auto found = templates_.find("tool_use"); found != templates_.end()) {
      return found->second;
    }
  }
  const auto found = templates_.find("default");
  if (found != templates_.end()) return found->second;
  throw Error(FRT_ERR_UNSUPPORTED,
              folder_ + " has no " + (templates_.empty() ? "" : "default ") +
                  "chat template (chat_template.jinja, or chat_template in tokenizer_config.json), "
                  "so it takes no conversations; set the model's option chat_template to a file "
                  "with one, or give the prompt as it is, without --chat");
}

PromptText TemplateChat::render(const Json& messages, const Json& tools,
                                const Json& options) const {
  ChatOptions chosen;
  read_chat_options(options, chosen);
  if (!messages.is_array() || messages.empty()) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "there are no messages; give at least one of the user");
  }
  if (!tools.is_null() && !tools.is_array()) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "tools must be a list of function descriptions");
  }
  const bool has_tools = !tools.is_null() && !tools.empty();
  const JinjaTemplate& format = choose(has_tools);
  if (has_tools && !format.mentions("tools")) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                "the chat template of this model has no place for tools; give none");
  }
  Json outside = {
      {"messages", messages}, {"tools", has_tools ? tools : Json()}, {"documents", Json()}};
  Json& all = outside["messages"];
  for (std::size_t i = 0; i < all.size(); ++i) {
    check_role(all[i], i);
    join_content(all[i], i);
    parse_arguments(all[i], i);
  }
  Json own = tokens_;
  for (const auto& [name, value] : options.items()) {
    if (name != "allow_special_tokens") own[name] = value;
  }
  own["add_generation_prompt"] = chosen.add_generation_prompt;
  PromptText prompt = format.render(outside, own, static_cast<std::int64_t>(std::time(nullptr)));
  if (chosen.allow_special_tokens) prompt.trust();
  return prompt;
}

std::unique_ptr<ChatReader> TemplateChat::reader(const Json&, const Json& options) const {
  ChatOptions chosen;
  read_chat_options(options, chosen);
  return std::make_unique<Reader>();
}

}  // namespace frt::lm
