// SPDX-License-Identifier: Apache-2.0
#include "wire.hpp"

using namespace frt::test;
using namespace frt::host;

namespace {

const Json kBase = {{"model", "m"},
                    {"messages", Json::array({{{"role", "user"}, {"content", "hi"}}})}};

ApiCall call_with(const char* member, const Json& value) {
  Json body = kBase;
  body[member] = value;
  return parse(chat_completions(), body);
}

std::string refused(const char* member, const Json& value) {
  return refusal_with(chat_completions(), kBase, member, value);
}

std::string refused_message(const Json& message) {
  return refused("messages", Json::array({message}));
}

const Json kTool = Json::parse(R"({"type": "function", "function": {"name": "read",
  "description": "Reads.", "parameters": {"type": "object", "properties": {"b": {}, "a": {}}}}})");

}  // namespace

TEST_CASE("the smallest chat request is a call with every default") {
  const ApiCall call = parse(chat_completions(), kBase);
  CHECK(call.kind == ApiCall::Kind::kChat);
  CHECK(call.model == "m");
  CHECK(!call.stream);
  CHECK(call.messages == kBase["messages"]);
  CHECK(call.tools.is_null());
  CHECK(call.chat_options == Json::object());
  CHECK(!call.max_tokens);
  CHECK(call.choices == 1);
  CHECK(!call.demands_call());
  CHECK(call.parallel_tool_calls);
}

TEST_CASE("unknown fields are ignored") {
  CHECK(call_with("safety_identifier", {{"a", 1}}).messages == kBase["messages"]);
  CHECK(call_with("service_tier", "auto").messages == kBase["messages"]);
}

TEST_CASE("fields of generation reach the call") {
  CHECK(call_with("temperature", 0).sampling.temperature == 0.0f);
  CHECK(call_with("temperature", 1.5).sampling.temperature == 1.5f);
  CHECK(call_with("top_p", 0.5).sampling.top_p == 0.5f);
  CHECK(call_with("min_p", 0.25).sampling.min_p == 0.25f);
  CHECK(call_with("top_k", 40).sampling.top_k == 40);
  CHECK(call_with("top_k", -1).sampling.top_k == 0);
  CHECK(call_with("presence_penalty", -2).sampling.presence_penalty == -2.0f);
  CHECK(call_with("frequency_penalty", 1).sampling.frequency_penalty == 1.0f);
  CHECK(call_with("repetition_penalty", 1.25).sampling.repetition_penalty == 1.25f);
  const std::vector<frt_logit_bias> bias =
      call_with("logit_bias", {{"50256", -100}, {"0", 2.5}}).logit_bias;
  REQUIRE(bias.size() == 2);
  CHECK(bias[0].id == 50256);
  CHECK(bias[0].value == -100);
  CHECK(bias[1].id == 0);
  CHECK(bias[1].value == 2.5f);
  CHECK(call_with("seed", 7).sampling.seed == 7);
  CHECK(call_with("seed", -1).sampling.seed == UINT64_MAX);
  CHECK(call_with("max_tokens", 9).max_tokens == 9);
  CHECK(call_with("max_completion_tokens", 9).max_tokens == 9);
  CHECK(call_with("max_tokens", 1000000).max_tokens == ApiLimits().max_tokens);
  CHECK(call_with("min_tokens", 4).min_tokens == 4);
  CHECK(call_with("ignore_eos", true).min_tokens == UINT64_MAX);
  CHECK(call_with("stop", "x").stop == std::vector<std::string>{"x"});
  CHECK(call_with("stop", {"x", "y"}).stop == std::vector<std::string>{"x", "y"});
  CHECK(call_with("n", 3).choices == 3);
  CHECK(call_with("logprobs", true).log_probabilities);
  CHECK(call_with("stream_options", {{"include_usage", true}}).include_usage);
  CHECK(call_with("parallel_tool_calls", false).parallel_tool_calls == false);
}

TEST_CASE("a null field is a missing one") {
  for (const char* name : {"temperature", "top_p", "stop", "n", "seed", "max_tokens", "tools",
                           "tool_choice", "stream", "stream_options", "response_format", "logprobs",
                           "logit_bias", "functions", "modalities", "chat_template_kwargs"}) {
    CAPTURE(name);
    CHECK(refused(name, nullptr) == "");
  }
}

TEST_CASE("a field of another type or outside its range is refused by its name") {
  const std::pair<const char*, Json> cases[] = {
      {"model", 3},
      {"stream", "yes"},
      {"stream_options", true},
      {"temperature", -0.1},
      {"temperature", 2.1},
      {"temperature", "hot"},
      {"temperature", true},
      {"top_p", -0.1},
      {"max_tokens", -2},
      {"model", std::string(257, 'm')},
      {"top_p", 1.1},
      {"min_p", 1},
      {"top_k", -2},
      {"top_k", 1.5},
      {"top_k", uint64_t{1} << 31},
      {"presence_penalty", 2.5},
      {"frequency_penalty", -3},
      {"repetition_penalty", 0},
      {"seed", 0.5},
      {"seed", "7"},
      {"max_tokens", 0},
      {"max_tokens", -5},
      {"max_tokens", UINT64_MAX},
      {"max_tokens", 1.0},
      {"max_completion_tokens", 0},
      {"min_tokens", -1},
      {"ignore_eos", 1},
      {"stop", ""},
      {"stop", 1},
      {"stop", std::string(257, 'x')},
      {"stop", {"a", ""}},
      {"stop", std::vector<std::string>(17, "x")},
      {"n", 0},
      {"n", 9},
      {"logprobs", 1},
      {"top_logprobs", 21},
      {"top_logprobs", 2},  // without logprobs
      {"parallel_tool_calls", 0},
      {"tools", {{"a", 1}}},
      {"tools", {1}},
      {"tool_choice", "any"},
      {"tool_choice", "required"},  // without tools
      {"tool_choice", {{"type", "allowed_tools"}}},
      {"tool_choice", {{"type", "function"}}},
      {"tool_choice", {{"type", "function"}, {"function", {{"name", "none"}}}}},
      {"response_format", "json"},
      {"response_format", {{"type", "xml"}}},
      {"response_format", {{"type", "json_schema"}}},
      {"response_format", {{"type", "json_schema"}, {"json_schema", {{"name", "x"}}}}},
      {"response_format", {{"type", "json_schema"}, {"json_schema", {{"schema", "x"}}}}},
      {"reasoning_effort", "huge"},
      {"enable_thinking", "no"},
      {"chat_template_kwargs", {{"thinking", true}}},
      {"chat_template_kwargs", {{"enable_thinking", 1}}},
      {"chat_template_kwargs", {{"allow_special_tokens", true}}},
      {"messages", 1},
      {"messages", Json::array()},
      {"messages", {1}},
  };
  for (const auto& entry : cases) {
    const char* name = entry.first;
    const Json& value = entry.second;
    CAPTURE(name);
    CAPTURE(value.dump());
    CHECK(refused(name, value).starts_with(name));
  }
}

TEST_CASE("a bias of tokens has ids in decimal, bounded values and a bounded count") {
  const auto refused_bias = [](const char* text) {
    return refused("logit_bias", Json::parse(text));
  };
  for (const char* text :
       {R"([1])", R"({"x": 1})", R"({"-1": 1})", R"({"01": 1})", R"({" 1": 1})", R"({"1 ": 1})",
        R"({"": 1})", R"({"2147483648": 1})", R"({"1.5": 1})", R"({"1": 101})", R"({"1": -100.5})",
        R"({"1": "2"})", R"({"1": true})"}) {
    CAPTURE(text);
    CHECK(refused_bias(text).starts_with("logit_bias"));
  }
  Json many = Json::object();
  for (int id = 0; id < 1024; ++id) many[std::to_string(id)] = 1;
  CHECK(refused("logit_bias", many) == "");
  many["1024"] = 1;
  CHECK(refused("logit_bias", many).starts_with("logit_bias has 1025 tokens"));
}

TEST_CASE("fields that change the answer and cannot be served are refused by their name") {
  const std::pair<const char*, Json> cases[] = {
      {"functions", {{{"name", "f"}}}},
      {"function_call", "auto"},
      {"audio", {{"voice", "alloy"}}},
      {"modalities", {"text", "audio"}},
      {"web_search_options", {{"search_context_size", "low"}}},
      {"continue_final_message", true},
      {"add_generation_prompt", false},
      {"chat_template", "{{ messages }}"},
  };
  for (const auto& entry : cases) {
    const char* name = entry.first;
    const Json& value = entry.second;
    CAPTURE(name);
    CHECK(refused(name, value).starts_with(name));
  }
  CHECK(refused("modalities", {"text"}) == "");
  CHECK(refused("logit_bias", Json::object()) == "");
  CHECK(refused("functions", Json::array()) == "");
}

TEST_CASE("other servers' words for the form of an answer are understood, one at a time") {
  const Json schema = {{"type", "object"}};
  struct Case {
    const char* name;
    Json value, format;
    const char* field;
  };
  const Json as_schema = {{"type", "json_schema"}, {"schema", schema}};
  const Json as_regex = {{"type", "regex"}, {"pattern", "a+"}};
  const Json as_grammar = {{"type", "grammar"}, {"grammar", "root ::= \"x\""}};
  const Json as_choice = {{"type", "choice"}, {"choices", {"a", "b"}}};
  const Case cases[] = {
      {"guided_json", schema, as_schema, "guided_json"},
      {"guided_json", schema.dump(), as_schema, "guided_json"},
      {"json_schema", schema, as_schema, "json_schema"},
      {"guided_regex", "a+", as_regex, "guided_regex"},
      {"guided_grammar", "root ::= \"x\"", as_grammar, "guided_grammar"},
      {"grammar", "root ::= \"x\"", as_grammar, "grammar"},
      {"guided_choice", {"a", "b"}, as_choice, "guided_choice"},
      {"structured_outputs", {{"json", schema}}, as_schema, "structured_outputs.json"},
      {"structured_outputs", {{"regex", "a+"}}, as_regex, "structured_outputs.regex"},
      {"structured_outputs", {{"choice", {"a", "b"}}}, as_choice, "structured_outputs.choice"},
      {"structured_outputs",
       {{"json_object", true}},
       {{"type", "json_object"}},
       "structured_outputs.json_object"},
  };
  for (const Case& each : cases) {
    CAPTURE(each.field);
    const ApiCall call = call_with(each.name, each.value);
    CHECK(call.response_format == each.format);
    CHECK(call.response_format_field == each.field);
  }
  CHECK(call_with("guided_regex", "").response_format.is_null());
  CHECK(refused("guided_json", 3).starts_with("guided_json"));
  CHECK(refused("guided_json", "{").starts_with("guided_json"));
  CHECK(refused("guided_choice", {"a", ""}).starts_with("guided_choice"));
  CHECK(refused("guided_regex", std::string(300'000, 'a')).starts_with("guided_regex"));
  CHECK(refused("structured_outputs", {{"regex", "a"}, {"choice", {"a"}}})
            .starts_with("structured_outputs.choice"));
  CHECK(refused("structured_outputs", {{"structural_tag", "x"}})
            .starts_with("structured_outputs.structural_tag"));
}

TEST_CASE("a message that cannot be read is refused by its place") {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"content": "x"})", "messages[0].role is missing"},
      {R"({"role": "robot", "content": "x"})", "messages[0].role is 'robot'"},
      {R"({"role": "user", "content": 5})", "messages[0].content is 5"},
      {R"({"role": "user", "content": ["x"]})", "messages[0].content[0] is 'x'"},
      {R"({"role": "user", "content": [{"text": "x"}]})", "messages[0].content[0].type is missing"},
      {R"({"role": "user", "content": [{"type": "text", "text": 1}]})",
       "messages[0].content[0].text is 1"},
      {R"({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]})",
       "messages[0].content[0].image_url is an image: this server takes text only"},
      {R"({"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]})",
       "messages[0].content[0].type is 'input_audio'"},
      {R"({"role": "assistant", "tool_calls": [{"id": "a"}]})",
       "messages[0].tool_calls[0].function is missing"},
      {R"({"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]})",
       "messages[0].tool_calls[0].function.name is missing"},
      {R"({"role": "assistant", "reasoning_content": 1})", "messages[0].reasoning_content is 1"},
      {R"({"role": "assistant", "function_call": {"name": "f"}})", "messages[0].function_call"},
  };
  for (const auto& entry : cases) {
    const char *message = entry.first, *expected = entry.second;
    CAPTURE(message);
    const std::string said = refused_message(Json::parse(message));
    CAPTURE(said);
    CHECK(said.starts_with(expected));
  }
}

TEST_CASE("a text and a list of its parts are the same message") {
  const ApiCall listed = call_with(
      "messages", Json::parse(R"([{"role": "user", "content": [{"type": "text", "text": "hi",
                   "cache_control": {"type": "ephemeral"}}]}])"));
  CHECK(listed.messages == kBase["messages"]);
}

TEST_CASE("what an assistant said comes back whole: reasoning, calls, arguments to the byte") {
  const ApiCall call = call_with("messages", Json::parse(R"([
    {"role": "user", "content": "go"},
    {"role": "assistant", "content": null, "reasoning_content": "hm",
     "tool_calls": [{"id": "c1", "type": "function",
                     "function": {"name": "read", "arguments": "{\"b\":1, \"a\" : 1.50}"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "x"},
                                                      {"type": "text", "text": "y"}]},
    {"role": "assistant", "content": "done", "reasoning": "so"},
    {"role": "user", "content": "more"}])"));
  CHECK(call.messages == Json::parse(R"([
    {"role": "user", "content": "go"},
    {"role": "assistant", "content": "", "reasoning_content": "hm",
     "tool_calls": [{"id": "c1", "type": "function",
                     "function": {"name": "read", "arguments": "{\"b\":1, \"a\" : 1.50}"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "x\ny"},
    {"role": "assistant", "content": "done", "reasoning_content": "so"},
    {"role": "user", "content": "more"}])"));
  CHECK(call.chat_options["preserve_thinking"] == true);
}

TEST_CASE("tools keep the order of their keys, and lose what would change the prompt for nothing") {
  Json tool = kTool;
  tool["cache_control"] = {{"type", "ephemeral"}};
  tool["function"]["strict"] = true;
  const ApiCall call = call_with("tools", Json::array({tool}));
  CHECK(call.tools.dump() == Json::array({kTool}).dump());
  CHECK(call.tool_names.at(0).client_name == "read");
  CHECK(call.chat_options["preserve_thinking"] == true);
}

TEST_CASE("tools that are no functions are no error: custom ones take text, others are left out") {
  const ApiCall call = call_with("tools", Json::parse(R"([
    {"type": "web_search"},
    {"type": "custom", "custom": {"name": "patch", "description": "Patches.",
      "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: x"}}}}])"));
  REQUIRE(call.tools.size() == 1);
  CHECK(call.tools[0]["function"]["name"] == "patch");
  CHECK(call.tools[0]["function"]["parameters"]["required"] == Json{"input"});
  CHECK(call.tools[0].dump().find("start: x") != std::string::npos);
  CHECK(call.tool_names[0].custom);
  CHECK(call.tools_left_out == std::vector<std::string>{"web_search"});
}

TEST_CASE("tools are sorted by name if the operator asks for it") {
  Json tools = Json::array();
  for (const char* name : {"write", "bash", "read"}) {
    tools.push_back({{"type", "function"}, {"function", {{"name", name}}}});
  }
  Json body = kBase;
  body["tools"] = tools;
  std::string sent, sorted;
  for (const ApiTool& tool : parse(chat_completions(), body).tool_names) sent += tool.name + " ";
  const ApiCall call = parse(chat_completions(), body, {}, {.limits = {}, .sort_tools = true});
  for (const ApiTool& tool : call.tool_names) sorted += tool.name + " ";
  CHECK(sent == "write bash read ");
  CHECK(sorted == "bash read write ");
  CHECK(call.tools[0]["function"]["name"] == "bash");
}

TEST_CASE("a tool that cannot be told to the model is refused by its place") {
  const auto said = [](const char* function) {
    return refused("tools",
                   Json::array({{{"type", "function"}, {"function", Json::parse(function)}}}));
  };
  CHECK(said(R"({})").starts_with("tools[0].function.name is missing"));
  CHECK(said(R"({"name": ""})").starts_with("tools[0].function.name is ''"));
  CHECK(said(R"({"name": "a>b"})").starts_with("tools[0].function.name is 'a>b'"));
  CHECK(said(R"({"name": "a", "description": 1})").starts_with("tools[0].function.description"));
  CHECK(said(R"({"name": "a", "parameters": []})").starts_with("tools[0].function.parameters"));
  CHECK(refused("tools", {kTool, kTool}) == "tools has two of the name 'read'");
}

TEST_CASE("a choice of tools reaches the call, and what forces one needs a constraint") {
  Json body = kBase;
  body["tools"] = Json::array({kTool});
  const auto with = [&](const Json& choice) {
    body["tool_choice"] = choice;
    return parse(chat_completions(), body);
  };
  CHECK(with("auto").tool_choice.mode == ApiToolChoice::kAuto);
  CHECK(!with("auto").demands_call());
  CHECK(with("none").tool_choice.mode == ApiToolChoice::kNone);
  CHECK(with("none").tools.size() == 1);  // the prompt stays the same
  CHECK(with("required").demands_call());
  const ApiCall named = with(Json::parse(R"({"type": "function", "function": {"name": "read"}})"));
  CHECK(named.tool_choice.mode == ApiToolChoice::kNamed);
  CHECK(named.tool_choice.name == "read");
  CHECK(named.demands_call());
}

TEST_CASE("a format of the answer is carried in one shape") {
  CHECK(call_with("response_format", {{"type", "text"}}).response_format.is_null());
  CHECK(call_with("response_format", {{"type", "json_object"}}).response_format ==
        Json{{"type", "json_object"}});
  const ApiCall call = call_with("response_format", Json::parse(R"({"type": "json_schema",
      "json_schema": {"name": "n", "strict": true, "schema": {"type": "object"}}})"));
  CHECK(call.response_format == Json::parse(R"({"type": "json_schema",
      "schema": {"type": "object"}, "name": "n", "strict": true})"));
  CHECK(call.response_format_field == "response_format");
}

TEST_CASE("options of the chat format come from all the places where clients put them") {
  CHECK(call_with("enable_thinking", false).chat_options["enable_thinking"] == false);
  CHECK(call_with("reasoning_effort", "none").chat_options["enable_thinking"] == false);
  CHECK(call_with("reasoning_effort", "high").chat_options["enable_thinking"] == true);
  CHECK(call_with("chat_template_kwargs", {{"enable_thinking", false}})
            .chat_options["enable_thinking"] == false);
  Json body = kBase;
  body["tools"] = Json::array({kTool});
  body["preserve_thinking"] = false;
  CHECK(parse(chat_completions(), body).chat_options["preserve_thinking"] == false);
}

TEST_CASE("requests of one conversation are told by headers, else by the cache key") {
  Json body = kBase;
  body["prompt_cache_key"] = "key";
  CHECK(parse(chat_completions(), kBase).session == "");
  CHECK(parse(chat_completions(), body).session == "key");
  CHECK(parse(chat_completions(), body, {{"x-session-id", "s"}}).session == "s");
  CHECK(parse(chat_completions(), body, {{"x-session-id", std::string(513, 's')}}).session ==
        "key");
}

TEST_CASE("bodies that are no request are refused: no JSON, too deep, too many, too large") {
  const auto said = [](const std::string& body, const ApiLimits& limits = {}) {
    return refusal_of(chat_completions(), body, {.limits = limits});
  };
  CHECK(said("").starts_with("the body cannot be read as JSON"));
  CHECK(said("{\"a\": 1, \"a\": 2}").find("stands twice") != std::string::npos);
  CHECK(said("[]").starts_with("the body is a list"));
  CHECK(said(std::string(100000, '[')).find("deeper than 160") != std::string::npos);
  CHECK(said("{\"a\": [1, 2, 3]}", {.values = 4}).find("more than the allowed 4 values") !=
        std::string::npos);
  CHECK(said("{\"m\": \"\xff\"}").starts_with("the body cannot be read as JSON"));
  CHECK(said(kBase.dump(), {.messages = 0}).starts_with("messages has 1 entries"));
  try {
    chat_completions().parse(kBase.dump(), {}, {.limits = {.body = 10}});
    FAIL("it was taken");
  } catch (const ApiError& error) {
    CHECK(error.status() == 413);
  }
}

TEST_CASE("schemas are limited in depth and bytes") {
  const auto with = [&](const Json& schema, const ApiLimits& limits) {
    Json tool = kTool;
    tool["function"]["parameters"] = schema;
    return refusal_with(chat_completions(), kBase, "tools", Json::array({tool}),
                        {.limits = limits});
  };
  const Json deep = Json::parse(R"({"a": {"b": {"c": {}}}})");
  CHECK(with(deep, {.schema_depth = 4}) == "");
  CHECK(with(deep, {.schema_depth = 3}).find("nested deeper than 3") != std::string::npos);
  CHECK(with(deep, {.schema = deep.dump().size()}) == "");
  CHECK(with(deep, {.schema = deep.dump().size() - 1}).find("more than 19 bytes") !=
        std::string::npos);
}

TEST_CASE(
    "what a model wrote wrongly comes back to it as text, and is no error of every later turn") {
  const auto arguments_of = [](const std::string& given) {
    const Json call = {{"function", {{"name", "f"}, {"arguments", given}}}};
    const Json message = {{"role", "assistant"}, {"tool_calls", Json::array({call})}};
    return call_with("messages", Json::array({message}))
        .messages[0]["tool_calls"][0]["function"]["arguments"]
        .get<std::string>();
  };
  CHECK(arguments_of("") == "{}");
  CHECK(arguments_of("{\"a\":1}") == "{\"a\":1}");
  CHECK(arguments_of("{\"a\":") == "{\"input\":\"{\\\"a\\\":\"}");
  CHECK(arguments_of("[1]") == "{\"input\":\"[1]\"}");
  std::string deep = "{\"a\":";
  for (int i = 0; i < 121; ++i) deep += "[";
  for (int i = 0; i < 121; ++i) deep += "]";
  CHECK(arguments_of(deep + "}") == deep + "}");  // as deep as a chat format lets a model write
}

TEST_CASE("the result of a tool may hold an image: a note stands for it") {
  const Json parts = Json::parse(R"([{"type": "text", "text": "a"},
      {"type": "image_url", "image_url": {"url": "data:"}}, {"type": "x\n"}])");
  const Json message = {{"role", "tool"}, {"tool_call_id", "1"}, {"content", parts}};
  CHECK(call_with("messages", Json::array({message})).messages[0]["content"] ==
        "a\n[an image was left out: this model reads text]\n"
        "[a part of type 'x\\n' was left out: this model reads text]");
}

TEST_CASE("0 of top_p is the most probable token, and -1 of max_tokens is no number") {
  const auto top_p = call_with("top_p", 0).sampling.top_p;
  REQUIRE(top_p);
  CHECK(*top_p > 0);
  CHECK(*top_p < 1e-30f);
  CHECK(!call_with("max_tokens", -1).max_tokens);
}
