// SPDX-License-Identifier: Apache-2.0
#include "http/api/request/content.hpp"

#include <frt/io/utf8.hpp>
#include <optional>

#include "http/api/error.hpp"
#include "http/api/request/hygiene.hpp"

namespace frt::host::api {

namespace {

bool is_image(const std::string& type) {
  return type == "image" || type == "image_url" || type == "input_image";
}

// Absent: the part is no text.
std::optional<std::string> text_of(const Fields& part, const std::string& type) {
  for (const char* text : {"text", "input_text", "output_text", "summary_text", "reasoning_text"}) {
    if (type == text) return part.required_text("text");
  }
  if (type == "refusal") return part.required_text("refusal");
  if (type != "document") return {};
  const auto source = part.object("source");
  if (!source) refuse(part.path_of("source"), "is missing: give the document");
  if (source->required_text("type") != "text") return {};
  return source->required_text("data");
}

}  // namespace

std::string indexed(const std::string& path, std::size_t index) {
  return path + "[" + std::to_string(index) + "]";
}

void for_each_part(const Fields& owner, std::string_view name, const ApiLimits& limits,
                   const std::function<void(const Fields&, const std::string&)>& each) {
  const Json* content = owner.find(name);
  if (!content) return;
  const std::string path = owner.path_of(name);
  if (content->is_string()) {
    const Json part = {{"type", "text"}, {"text", *content}};
    return each(Fields(part, path), "text");
  }
  if (!content->is_array()) {
    refuse(path, "is " + shown_value(*content) + ": give a text or a list of parts");
  }
  std::size_t index = 0;
  for (const Json& entry : *owner.array(name, limits.parts)) {
    const Fields part(entry, indexed(path, index++));
    each(part, part.required_text("type"));
  }
}

std::string part_text(const Fields& part, const std::string& type) {
  if (auto text = text_of(part, type)) return *std::move(text);
  if (is_image(type)) {  // by these words Codex knows that it can leave the image out
    const std::string path = part.path_of(type == "image" ? "source" : "image_url");
    throw ApiError(ApiErrorKind::kInvalid, path + " is an image: this server takes text only", path,
                   "invalid_value");
  }
  refuse(part.path_of("type"), "is " + io::quote(type) + ": this server takes text only");
}

std::string read_text(const Fields& owner, std::string_view name, const ApiLimits& limits) {
  std::string text;
  for_each_part(owner, name, limits, [&](const Fields& part, const std::string& type) {
    append_part(text, part_text(part, type));
  });
  return text;
}

std::string read_result(const Fields& owner, std::string_view name, const ApiLimits& limits) {
  std::string text;
  for_each_part(owner, name, limits, [&](const Fields& part, const std::string& type) {
    if (const auto said = text_of(part, type)) return append_part(text, *said);
    append_part(text, "[" + (is_image(type) ? "an image" : "a part of type " + io::quote(type)) +
                          " was left out: this model reads text]");
  });
  return text;
}

}  // namespace frt::host::api
