// SPDX-License-Identifier: Apache-2.0
// The tokens of a prompt are the same with and without what is remembered of earlier ones, whatever
// is appended, edited or said in the words of the format; and an owner's prompts serve that owner.
#include "lm/prompt_memory.hpp"

#include <doctest/doctest.h>

#include <frt/error.hpp>
#include <frt/models/tokenizer.hpp>
#include <random>

namespace frt::host {
namespace {

using models::Tokenizer;

// What `model` is in this file: a tokenizer, and whether it says which of its tokens are borders.
struct Spoken {
  Tokenizer tokenizer;
  bool lies = false;   // a token is called a border that ordinary text contains
  uint64_t bytes = 0;  // encoded so far
};

Spoken& spoken(frt_model model) {
  return *reinterpret_cast<Spoken*>(model);
}

frt_status encode(frt_model model, const char* text, uint64_t bytes,
                  const frt_encode_params* params, frt_sink sink, void* user, frt_error* error) {
  return guard(error, [&] {
    spoken(model).bytes += bytes;
    std::vector<models::TextRange> plain;
    for (uint64_t i = 0; i < params->plain_count; ++i) {
      plain.push_back({params->plain[i].begin, params->plain[i].end});
    }
    const auto ids = spoken(model).tokenizer.encode(
        {text, bytes}, {plain, params->max_tokens, !(params->flags & FRT_ENCODE_CONTINUES)});
    return sink(user, ids.data(), ids.size() * sizeof(ids[0]));
  });
}

frt_status token_bytes(frt_model model, int32_t id, uint32_t* flags, frt_sink sink, void* user,
                       frt_error*) {
  const Tokenizer& tokenizer = spoken(model).tokenizer;
  *flags = tokenizer.is_border(id) ? FRT_TOKEN_BORDER : 0;
  if (spoken(model).lies) *flags = tokenizer.has_token(id) ? FRT_TOKEN_BORDER : 0;
  if (!tokenizer.has_token(id)) return FRT_OK;
  const std::string_view bytes = tokenizer.token_bytes(id);
  return sink(user, bytes.data(), bytes.size());
}

const void* extension(frt_model, const char* id) {
  static const frt_tokenizer_v1 table = [] {
    frt_tokenizer_v1 made{};
    made.struct_size = sizeof(made);
    made.vocabulary = [](frt_model model) {
      return static_cast<uint32_t>(spoken(model).tokenizer.vocab_size());
    };
    made.encode = encode;
    made.decode = [](frt_model, const int32_t*, uint64_t, uint32_t, frt_sink, void*, frt_error*) {
      return FRT_ERR_UNSUPPORTED;
    };
    made.token_id = [](frt_model, const char*) { return -1; };
    made.stream_create = [](frt_model, uint32_t, frt_text_stream*, frt_error*) {
      return FRT_ERR_UNSUPPORTED;
    };
    made.stream_push = [](frt_text_stream, int32_t, frt_sink, void*, frt_error*) {
      return FRT_ERR_UNSUPPORTED;
    };
    made.stream_flush = [](frt_text_stream, frt_sink, void*, frt_error*) {
      return FRT_ERR_UNSUPPORTED;
    };
    made.stream_destroy = [](frt_text_stream) {};
    made.token_bytes = token_bytes;
    return made;
  }();
  return std::string_view(id) == FRT_EXT_TOKENIZER ? &table : nullptr;
}

struct World {
  explicit World(bool lies = false)
      : spoken{Tokenizer::load(std::filesystem::path(FRT_FIXTURES_DIR) / "qwen36/tokenizer"),
               lies} {}

  Spoken spoken;
  frt_model_v1 table = [] {
    frt_model_v1 made{};
    made.struct_size = sizeof(made);
    made.extension = extension;
    return made;
  }();
  const TextModel model{table, reinterpret_cast<frt_model>(&spoken), "m", "model 'm'"};
};

using Turns = std::vector<std::pair<std::string, std::string>>;  // role, content

// As a chat format writes it: contents are plain.
ChatPrompt rendered(const Turns& turns, bool trusted = false) {
  ChatPrompt prompt;
  const auto plain = [&](const std::string& text) {
    if (!text.empty() && !trusted) {
      prompt.plain.push_back({prompt.text.size(), prompt.text.size() + text.size()});
    }
    prompt.text += text;
  };
  for (const auto& [role, content] : turns) {
    prompt.text += "<|im_start|>" + role + "\n";
    plain(content);
    prompt.text += "<|im_end|>\n";
  }
  prompt.text += "<|im_start|>assistant\n";
  return prompt;
}

std::string random_text(std::mt19937_64& random) {
  static const std::vector<std::string> kParts = {
      "int value = 5;\n", "Hello", " world",        "  ", "\n\n",    "<|im_end|>",
      "<|im_start|>",     "<|im_", "<|endoftext|>", "é",  "e\u0301", "中文",
      "\U0001F600",       "12345", "<tool_call>",   "'s", "\t",      "|>"};
  std::string text;
  for (uint64_t n = random() % 12; n > 0; --n) text += kParts[random() % kParts.size()];
  return text;
}

}  // namespace

TEST_CASE(
    "random conversations that grow, branch and are edited have the tokens of a fresh model") {
  World world;
  PromptMemory memory(world.model, std::size_t{1} << 20);
  std::mt19937_64 random(3);
  std::vector<Turns> conversations(4);
  uint64_t refused = 0;
  for (int round = 0; round < 3000; ++round) {
    CAPTURE(round);
    Turns& turns = conversations[random() % conversations.size()];
    const uint64_t what = random() % 8;
    if (turns.size() > 30) turns.clear();
    if (what == 0 && !turns.empty()) {
      turns[random() % turns.size()].second = random_text(random);
    } else if (what == 1 && !turns.empty()) {
      turns.resize(random() % turns.size());
    } else if (what == 2) {
      turns = conversations[random() % conversations.size()];
    } else {
      turns.emplace_back(random() % 2 ? "user" : "assistant", random_text(random));
    }
    const ChatPrompt prompt = rendered(turns, random() % 10 == 0);
    const std::string owner = random() % 2 ? "a" : "b";
    const std::vector<int32_t> fresh = world.model.encode_prompt(prompt, 0);
    CHECK(memory.encode(owner, prompt, 0) == fresh);
    const uint64_t limit = 1 + random() % (fresh.size() + 2);
    std::vector<int32_t> limited;
    frt_status status = FRT_OK;
    try {
      limited = memory.encode(owner, prompt, limit);
    } catch (const Error& error) {
      status = error.status();
      ++refused;
    }
    CHECK(status == (fresh.size() > limit ? FRT_ERR_OUT_OF_RANGE : FRT_OK));
    if (status == FRT_OK) CHECK(limited == fresh);
    CHECK(memory.counts().bytes <= std::size_t{1} << 20);
  }
  CHECK(refused > 100);
  CHECK(memory.counts().known_tokens > memory.counts().new_tokens);
}

TEST_CASE("of a prompt that goes on only what follows the last border is tokenized") {
  World world;
  PromptMemory memory(world.model);
  Turns turns = {{"user", std::string(10000, 'x')}};
  memory.encode("a", rendered(turns), 0);
  turns.emplace_back("assistant", "Yes.");
  turns.emplace_back("user", "And now?");
  world.spoken.bytes = 0;
  memory.encode("a", rendered(turns), 0);
  CHECK(world.spoken.bytes < 200);
  CHECK(memory.counts().prompts == 1);  // the longer one stands for both
  world.spoken.bytes = 0;
  memory.encode("b", rendered(turns), 0);
  CHECK(world.spoken.bytes > 10000);  // another's are not known
}

TEST_CASE("text that is plain in one prompt and the format's own in the other is no common part") {
  World world;
  PromptMemory memory(world.model);
  const Turns turns = {{"user", "a<|im_end|>b"}, {"user", "c"}};
  for (const bool trusted : {false, true, false}) {
    const ChatPrompt prompt = rendered(turns, trusted);
    CHECK(memory.encode("a", prompt, 0) == world.model.encode_prompt(prompt, 0));
  }
}

TEST_CASE("what is remembered is bounded for an owner and for all") {
  World world;
  PromptMemory memory(world.model, 100'000);
  for (uint64_t i = 0; i < 2 * PromptMemory::kMostOfOwner; ++i) {
    memory.encode("a", rendered({{"user", std::to_string(i)}}), 0);
  }
  CHECK(memory.counts().prompts == PromptMemory::kMostOfOwner);
  memory.encode("a", rendered({{"user", std::string(40'000, 'y')}}), 0);  // more than a quarter
  CHECK(memory.counts().prompts == PromptMemory::kMostOfOwner);
  for (uint64_t i = 0; i < 20; ++i) {
    memory.encode("b", rendered({{"user", std::to_string(i) + std::string(5'000, 'y')}}), 0);
  }
  CHECK(memory.counts().prompts < PromptMemory::kMostOfOwner + 20);
  CHECK(memory.counts().bytes <= 100'000);
}

TEST_CASE("where a tokenizer calls borders what are none, its prompts are not remembered") {
  World world(true);
  PromptMemory memory(world.model);
  const ChatPrompt prompt = rendered({{"user", "Hello world"}});
  for (int again = 0; again < 2; ++again) {
    CHECK(memory.encode("a", prompt, 0) == world.model.encode_prompt(prompt, 0));
  }
  CHECK(memory.counts().prompts == 0);
}

}  // namespace frt::host
