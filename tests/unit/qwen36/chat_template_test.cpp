// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <filesystem>

#include <frt/error.hpp>
#include <frt/lm/chat_template.hpp>
#include <frt/models/json.hpp>
#include <fstream>
#include <iterator>
#include <string>

#include "../scratch_folder.hpp"
#include "architecture.hpp"

using frt::Error;
using frt::models::Json;
namespace fs = std::filesystem;

namespace {

// With the templates that frt.qwen36 knows.
struct ChatTemplate : frt::lm::ChatTemplate {
  explicit ChatTemplate(const fs::path& folder)
      : frt::lm::ChatTemplate(folder, frt::qwen36::Chat().known_templates(), "Qwen3.6") {}
};

const fs::path kFixtures = FRT_FIXTURES_DIR;

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Folder : public frt::test::ScratchFolder {
 public:
  void write(const char* name, const std::string& text) const {
    std::ofstream(path / name, std::ios::binary) << text;
  }
};

}  // namespace

TEST_CASE("the templates of the known checkpoints are accepted, with either line end") {
  const Folder folder;
  CHECK_NOTHROW(ChatTemplate(folder.path).require_known());  // none at all
  for (const char* checkpoint : {"demo", "qwen36/text", "qwen36/tokenizer"}) {
    const std::string text = read(kFixtures / checkpoint / "chat_template.jinja");
    REQUIRE(text.size() > 1000);
    CHECK_NOTHROW(ChatTemplate(kFixtures / checkpoint).require_known());
    std::string windows;
    for (const char c : text) windows += c == '\n' ? std::string("\r\n") : std::string(1, c);
    folder.write("chat_template.jinja", windows + "\r\n\r\n");
    CHECK_NOTHROW(ChatTemplate(folder.path).require_known());
  }
}

TEST_CASE("another template refuses conversations, naming the file and the option") {
  const Folder folder;
  const std::string known = read(kFixtures / "demo" / "chat_template.jinja");
  std::string changed = known;
  changed.replace(changed.find("<|im_start|>"), 12, "<|turn|>");

  folder.write("tokenizer_config.json", Json{{"chat_template", changed}}.dump());
  ChatTemplate own(folder.path);
  CHECK_THROWS_WITH_AS(own.require_known(), doctest::Contains("tokenizer_config.json"), Error);
  CHECK_THROWS_WITH_AS(own.require_known(), doctest::Contains("chat_template = \"builtin\""),
                       Error);
  own.accept();
  CHECK_NOTHROW(own.require_known());

  // The file of its own stands above the other one.
  folder.write("chat_template.jinja", known);
  CHECK_NOTHROW(ChatTemplate(folder.path).require_known());
  folder.write("chat_template.jinja", changed);
  CHECK_THROWS_WITH_AS(ChatTemplate(folder.path).require_known(),
                       doctest::Contains("chat_template.jinja"), Error);
}

TEST_CASE("a list of templates is known if all of them are; anything else is not") {
  const Folder folder;
  const std::string known = read(kFixtures / "demo" / "chat_template.jinja");
  const auto refused = [&](const Json& value) {
    folder.write("tokenizer_config.json", Json{{"chat_template", value}}.dump());
    try {
      ChatTemplate(folder.path).require_known();
      return false;
    } catch (const Error&) {
      return true;
    }
  };
  CHECK_FALSE(refused(Json()));
  CHECK_FALSE(refused(known));
  CHECK_FALSE(refused(Json::array({{{"name", "default"}, {"template", known}}})));
  CHECK(refused(Json::array({{{"name", "default"}, {"template", known}},
                             {{"name", "tool_use"}, {"template", "{{ messages }}"}}})));
  CHECK(refused(7));
  CHECK(refused(""));
}

TEST_CASE("a template is looked at wherever a checkpoint keeps one") {
  const std::string known = read(kFixtures / "demo" / "chat_template.jinja");
  const auto complaint = [](const Folder& folder) -> std::string {
    try {
      ChatTemplate(folder.path).require_known();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const Folder folder;
  // A processor's file, beside a template that is known.
  folder.write("chat_template.jinja", known);
  folder.write("chat_template.json", Json{{"chat_template", known}}.dump());
  CHECK(complaint(folder) == "");
  folder.write("chat_template.json", Json{{"chat_template", "{{ messages }}"}}.dump());
  CHECK(complaint(folder).find("chat_template.json") != std::string::npos);
  folder.write("chat_template.json", "[]");
  CHECK(complaint(folder).find("expected an object") != std::string::npos);
  fs::remove(folder.path / "chat_template.json");
  // Templates for special uses, by their names.
  fs::create_directory(folder.path / "additional_chat_templates");
  folder.write("additional_chat_templates/rag.jinja", known);
  folder.write("additional_chat_templates/README.md", "no template");
  CHECK(complaint(folder) == "");
  folder.write("additional_chat_templates/tool_use.jinja", "{{ messages }}");
  CHECK(complaint(folder).find("tool_use.jinja") != std::string::npos);
}
