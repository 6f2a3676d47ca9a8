// SPDX-License-Identifier: Apache-2.0
// Any text is a chat template or an error, and any template renders or refuses within its bounds.
// What it writes is UTF-8, and its parts from outside are in order. The text behind the last NUL is
// a content of the conversation.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <frt/error.hpp>
#include <frt/io/utf8.hpp>
#include <frt/lm/jinja.hpp>
#include <string>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  using frt::models::Json;
  static const Json kTools = Json::parse(R"([{"type": "function", "function": {"name": "f",
      "parameters": {"type": "object", "properties": {"n": {"type": "integer", "default": 1.5}}}}}])");
  static const Json kOwn = {
      {"bos_token", "<s>"}, {"eos_token", "</s>"}, {"add_generation_prompt", true}};
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = input.rfind('\0');
  const std::string_view source = input.substr(0, end);
  std::string content(end == input.npos ? std::string_view("hi") : input.substr(end + 1));
  if (!frt::io::is_utf8(content)) content = "hi";
  const Json outside = {
      {"messages",
       {{{"role", "system"}, {"content", "s"}},
        {{"role", "user"}, {"content", content}},
        {{"role", "assistant"},
         {"content", nullptr},
         {"tool_calls", {{{"function", {{"name", "f"}, {"arguments", {{"n", 1}}}}}}}}}}},
      {"tools", kTools}};
  try {
    const frt::models::PromptText prompt =
        frt::lm::JinjaTemplate(source, "t").render(outside, kOwn, 1753000000);
    if (!frt::io::is_utf8(prompt.text())) std::abort();
    std::size_t at = 0;
    for (const auto& range : prompt.plain()) {
      if (range.begin < at || range.end <= range.begin || range.end > prompt.text().size())
        std::abort();
      at = range.end;
    }
  } catch (const frt::Error&) {
  }
  return 0;
}
