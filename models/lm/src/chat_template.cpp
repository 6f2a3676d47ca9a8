// SPDX-License-Identifier: Apache-2.0
#include <frt/lm/chat_template.hpp>

#include <algorithm>
#include <frt/error.hpp>
#include <frt/io/file.hpp>
#include <frt/models/json.hpp>
#include <frt/models/sha256.hpp>
#include <string_view>

namespace frt::lm {
namespace {

using Known = std::span<const std::string_view>;

constexpr std::size_t kLargestTemplate = std::size_t{1} << 20;

std::string digest(std::string_view text) {
  text = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
  std::string normal;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!text.substr(i).starts_with("\r\n")) normal += text[i];
  }
  return models::sha256_text(normal);
}

bool knows_text(std::string_view text, Known known) {
  return std::find(known.begin(), known.end(), digest(text)) != known.end();
}

// "chat_template": a text, or a list of {"name", "template"}, all of which must be known.
bool knows(const models::Json& value, Known known) {
  if (value.is_null()) return true;
  if (value.is_string()) return knows_text(value.get_ref<const std::string&>(), known);
  return value.is_array() &&
         std::all_of(value.begin(), value.end(), [&](const models::Json& entry) {
           const auto text = entry.is_object() ? entry.find("template") : entry.end();
           return text != entry.end() && text->is_string() &&
                  knows_text(text->get_ref<const std::string&>(), known);
         });
}

// "chat_template" of a file of JSON, which may be absent.
bool knows_member_of(const std::filesystem::path& file, Known known) {
  if (!std::filesystem::exists(file)) return true;
  const models::Json content = io::read_json_file(file);
  if (!content.is_object()) {
    throw Error(FRT_ERR_FORMAT, file.string() + ": expected an object");
  }
  return knows(content.value("chat_template", models::Json()), known);
}

bool knows_file(const std::filesystem::path& file, Known known) {
  return knows_text(io::read_file(file, "chat template", kLargestTemplate), known);
}

// The first file whose template is not known; empty: there is none.
std::filesystem::path unknown_file(const std::filesystem::path& folder, Known known) {
  // The template of its own file stands above the one of the tokenizer.
  const std::filesystem::path file = folder / "chat_template.jinja";
  if (std::filesystem::exists(file)) {
    if (!knows_file(file, known)) return file;
  } else if (const auto config = folder / "tokenizer_config.json";
             !knows_member_of(config, known)) {
    return config;
  }
  // Which of these a conversation gets is the program's choice that reads them: all must be known.
  if (const auto processor = folder / "chat_template.json"; !knows_member_of(processor, known)) {
    return processor;
  }
  const std::filesystem::path more = folder / "additional_chat_templates";
  if (!std::filesystem::is_directory(more)) return {};
  for (const auto& entry : std::filesystem::directory_iterator(more)) {
    if (entry.path().extension() == ".jinja" && !knows_file(entry.path(), known))
      return entry.path();
  }
  return {};
}

}  // namespace

ChatTemplate::ChatTemplate(const std::filesystem::path& folder, Known known,
                           std::string_view format)
    : format_(format), unknown_in_(unknown_file(folder, known).string()) {}

void ChatTemplate::require_known() const {
  if (unknown_in_.empty()) return;
  throw Error(FRT_ERR_UNSUPPORTED,
              "the checkpoint has a chat template of its own, " + unknown_in_ +
                  ", which is not the conversation format of " + format_ +
                  " that this plugin writes; "
                  "prompts without a conversation work. If the built-in format is right for this "
                  "checkpoint, set the model's option chat_template = \"builtin\"");
}

}  // namespace frt::lm
