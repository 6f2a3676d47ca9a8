// SPDX-License-Identifier: Apache-2.0
// Where the next turn will part from this one is what the format says, and nothing where the format
// cannot say the turn that is invented for it.
#include "lm/chat/parting_point.hpp"

#include <doctest/doctest.h>

#include <cstdio>
#include <cstring>
#include <frt/error.hpp>
#include <string>
#include <vector>

namespace frt::host {
namespace {

using Json = nlohmann::ordered_json;

// A format that writes each message as "<role>content" and "<a>" behind the last one, and leaves
// reasoning out of all but the last answer. A byte is a token.
struct Format {
  enum Refuses { kNothing, kAnswers, kReasoning } refuses = kNothing;
  int renders = 0;
};

Format& format_of(frt_model model) {
  return *reinterpret_cast<Format*>(model);
}

frt_status refuse(frt_error* error, const char* text) {
  error->code = FRT_ERR_INVALID_ARGUMENT;
  std::snprintf(error->message, sizeof(error->message), "%s", text);
  return FRT_ERR_INVALID_ARGUMENT;
}

frt_status render(frt_model model, const char* messages, const char*, const char*, frt_sink text,
                  frt_sink, void* user, frt_error* error) {
  Format& format = format_of(model);
  ++format.renders;
  std::string out;
  for (const Json& message : Json::parse(messages)) {
    const std::string role = message["role"];
    if (role == "assistant" && format.refuses == Format::kAnswers) {
      return refuse(error, "raise_exception: no answers");
    }
    if (message.contains("reasoning_content") && format.refuses == Format::kReasoning) {
      return refuse(error, "raise_exception: no reasoning");
    }
    out += "<" + role.substr(0, 1) + ">" + message["content"].get<std::string>();
  }
  out += "<a><think>";
  return text(user, out.data(), out.size());
}

frt_status encode(frt_model, const char* text, uint64_t bytes, const frt_encode_params*,
                  frt_sink sink, void* user, frt_error*) {
  std::vector<int32_t> ids(text, text + bytes);
  return sink(user, ids.data(), ids.size() * sizeof(int32_t));
}

const void* extension(frt_model, const char* id) {
  static const frt_chat_v1 chat = [] {
    frt_chat_v1 table{};
    table.struct_size = sizeof(table);
    table.render = render;
    table.parse = [](frt_model, const char*, uint64_t, uint32_t, const char*, const char*, frt_sink,
                     void*, frt_error*) { return FRT_ERR_UNSUPPORTED; };
    table.generation_defaults = [](frt_model, frt_sink, void*, frt_error*) {
      return FRT_ERR_UNSUPPORTED;
    };
    return table;
  }();
  static const frt_tokenizer_v1 tokenizer = [] {
    frt_tokenizer_v1 table{};
    table.struct_size = sizeof(table);
    table.vocabulary = [](frt_model) { return 256U; };
    table.encode = encode;
    table.decode = [](frt_model, const int32_t*, uint64_t, uint32_t, frt_sink, void*, frt_error*) {
      return FRT_ERR_UNSUPPORTED;
    };
    table.token_id = [](frt_model, const char*) { return -1; };
    table.stream_create = [](frt_model, uint32_t, frt_text_stream*, frt_error*) {
      return FRT_ERR_UNSUPPORTED;
    };
    table.stream_push = [](frt_text_stream, int32_t, frt_sink, void*, frt_error*) {
      return FRT_ERR_UNSUPPORTED;
    };
    table.stream_flush = [](frt_text_stream, frt_sink, void*, frt_error*) {
      return FRT_ERR_UNSUPPORTED;
    };
    table.stream_destroy = [](frt_text_stream) {};
    return table;
  }();
  if (std::strcmp(id, FRT_EXT_CHAT) == 0) return &chat;
  if (std::strcmp(id, FRT_EXT_TOKENIZER) == 0) return &tokenizer;
  return nullptr;
}

struct World {
  Format format;
  frt_model_v1 table = [] {
    frt_model_v1 made{};
    made.struct_size = sizeof(made);
    made.extension = extension;
    return made;
  }();
  TextModel model{table, reinterpret_cast<frt_model>(&format), "m", "model 'm'"};
  Json messages = Json::parse(R"([{"role": "user", "content": "hello"}])");

  ChatPrompt prompt() const { return model.render(messages, {}, {}); }
  uint64_t point(const ChatPrompt& prompt) const {
    const std::vector<int32_t> ids = model.encode_prompt(prompt, 0);
    return parting_point(model, messages, {}, {}, prompt, ids);
  }
};

}  // namespace

TEST_CASE("the next turn parts where the answer's reasoning begins") {
  World world;
  const ChatPrompt prompt = world.prompt();
  CHECK(prompt.text == "<u>hello<a><think>");
  CHECK(world.point(prompt) == std::strlen("<u>hello<a>"));
  CHECK(world.messages.size() == 1);  // the invented turn is nobody else's
}

TEST_CASE("a template that throws on the invented turn costs a boundary and no request") {
  for (const auto refuses : {Format::kAnswers, Format::kReasoning}) {
    World world;
    world.format.refuses = refuses;
    const ChatPrompt prompt = world.prompt();
    CHECK(prompt.text == "<u>hello<a><think>");
    CHECK(world.point(prompt) == 0);
    CHECK(world.format.renders == 2);
    // It did throw.
    world.messages.push_back({{"role", "assistant"}, {"content", "x"}, {"reasoning_content", "x"}});
    CHECK_THROWS_WITH_AS(world.prompt(), doctest::Contains("raise_exception"), Error);
  }
}

}  // namespace frt::host
