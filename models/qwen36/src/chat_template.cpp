// SPDX-License-Identifier: Apache-2.0
#include "chat_template.hpp"

#include <algorithm>
#include <array>
#include <frt/error.hpp>
#include <frt/io/file.hpp>
#include <frt/models/json.hpp>
#include <frt/models/sha256.hpp>
#include <string_view>

namespace frt::qwen36 {
namespace {

constexpr std::size_t kLargestTemplate = std::size_t{1} << 20;

// Rendered with Jinja, each of them gives the prompts of tests/fixtures/qwen36/tokenizer.
constexpr std::array<std::string_view, 3> kKnown = {
    // Qwen3.6-27B and Qwen3.6-35B-A3B, their FP8 versions, and NVIDIA's NVFP4
    "e84f32a23fdda27689f868aa4a1a5621f41133e51a48d7f3efcbea2839574259",
    // the test checkpoints and the demo model of this project
    "24eaeccd99a6e4b40adef3b0e64c7a2ce2a870c323c73ade7b43c5fe10530734",
    "51e61f496f14fed9721b486e51b7ca6a8c04db436359519b82d8d2238018d7d8"};

std::string digest(std::string_view text) {
  text = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
  std::string normal;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!text.substr(i).starts_with("\r\n")) normal += text[i];
  }
  return models::sha256_text(normal);
}

bool knows_text(std::string_view text) {
  return std::find(kKnown.begin(), kKnown.end(), digest(text)) != kKnown.end();
}

// "chat_template": a text, or a list of {"name", "template"}, all of which must be known.
bool knows(const models::Json& value) {
  if (value.is_null()) return true;
  if (value.is_string()) return knows_text(value.get_ref<const std::string&>());
  return value.is_array() && std::all_of(value.begin(), value.end(), [](const models::Json& entry) {
           const auto text = entry.is_object() ? entry.find("template") : entry.end();
           return text != entry.end() && text->is_string() &&
                  knows_text(text->get_ref<const std::string&>());
         });
}

// "chat_template" of a file of JSON, which may be absent.
bool knows_member_of(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return true;
  const models::Json content = io::read_json_file(file);
  if (!content.is_object()) {
    throw Error(FRT_ERR_FORMAT, file.string() + ": expected an object");
  }
  return knows(content.value("chat_template", models::Json()));
}

bool knows_file(const std::filesystem::path& file) {
  return knows_text(io::read_file(file, "chat template", kLargestTemplate));
}

// The first file whose template is not known; empty: there is none.
std::filesystem::path unknown_file(const std::filesystem::path& folder) {
  // The template of its own file stands above the one of the tokenizer.
  const std::filesystem::path file = folder / "chat_template.jinja";
  if (std::filesystem::exists(file)) {
    if (!knows_file(file)) return file;
  } else if (const auto config = folder / "tokenizer_config.json"; !knows_member_of(config)) {
    return config;
  }
  // Which of these a conversation gets is the program's choice that reads them: all must be known.
  if (const auto processor = folder / "chat_template.json"; !knows_member_of(processor)) {
    return processor;
  }
  const std::filesystem::path more = folder / "additional_chat_templates";
  if (!std::filesystem::is_directory(more)) return {};
  for (const auto& entry : std::filesystem::directory_iterator(more)) {
    if (entry.path().extension() == ".jinja" && !knows_file(entry.path())) return entry.path();
  }
  return {};
}

}  // namespace

ChatTemplate::ChatTemplate(const std::filesystem::path& folder)
    : unknown_in_(unknown_file(folder).string()) {}

void ChatTemplate::require_known() const {
  if (unknown_in_.empty()) return;
  throw Error(FRT_ERR_UNSUPPORTED,
              "the checkpoint has a chat template of its own, " + unknown_in_ +
                  ", which is not the conversation format of Qwen3.6 that this plugin writes; "
                  "prompts without a conversation work. If the built-in format is right for this "
                  "checkpoint, set the model's option chat_template = \"builtin\"");
}

}  // namespace frt::qwen36
