// SPDX-License-Identifier: Apache-2.0
// Prints replies of every protocol, one a line: {"schema", "value"} for schema_test.py, or with
// --streams {"protocol", "stream", "whole"} for sdk_test.py.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#define DOCTEST_CONFIG_IMPLEMENT
#include "wire.hpp"

using namespace frt::test;
using namespace frt::host;

namespace {

struct Names {
  const Protocol* protocol;
  const char *name, *whole, *event, *error;
};

const Names kProtocols[] = {
    {&chat_completions(), "chat", "ChatCompletion", "ChatCompletionChunk", "OpenAIError"},
    {&completions(), "text", "Completion", "CompletionChunk", "OpenAIError"},
    {&responses(), "responses", "Response", "ResponsesEvent", "OpenAIError"},
    {&messages(), "messages", "Message", "MessagesEvent", "AnthropicError"},
};

std::vector<Story> stories() {
  Story told({text("a"), text("b")});
  for (Told& entry : told.told) {
    entry.probability = ApiTokenProbability{entry.event.text, -0.5f, {{"x", -1.0f}}};
  }
  Story bare;
  bare.frt = nullptr;
  return {bare,
          told,
          {{reasoning("h"), reasoning("m"), text("a\xff"), tool_begin(0, "f"),
            tool_arguments(0, "{\"a\""), tool_arguments(0, ":1}"), tool_end(0), tool_begin(1, "c"),
            tool_arguments(1, "{\"input\":\"x\"}"), tool_end(1)}},
          {{text("a")}, {.finish = Finish::kLength}},
          {{tool_begin(0, "f"), tool_arguments(0, "{}"), tool_end(0, true)},
           {.finish = Finish::kContext}},
          {{text("a")}, {.finish = Finish::kStop, .stop_string = "END"}}};
}

void print(const Json& line) {
  std::puts(line.dump(-1, ' ', true).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  doctest::Context context;
  context.setAsDefaultForAssertsOutOfTestCases();
  const bool streams = argc > 1 && std::strcmp(argv[1], "--streams") == 0;
  for (const Names& names : kProtocols) {
    for (const Story& story : stories()) {
      ApiCall call;
      call.prompts = {"x"};
      call.include_usage = call.log_probabilities = true;
      call.tool_names = {{.name = "f", .client_name = "f", .space = "s"},
                         {.name = "c", .client_name = "c", .space = {}, .custom = true}};
      const Json whole = whole_reply(*names.protocol, call, story);
      if (streams) {
        call.stream = true;
        print({{"protocol", names.name},
               {"stream", reply_of(*names.protocol, call, story)},
               {"whole", whole}});
        continue;
      }
      print({{"schema", names.whole}, {"value", whole}});
      for (const Record& record : streamed_reply(*names.protocol, call, story)) {
        if (record.data != "[DONE]") print({{"schema", names.event}, {"value", record.data}});
      }
    }
    if (streams) continue;
    const ApiError error(ApiErrorKind::kContextLength, "too long", "messages");
    print({{"schema", names.error}, {"value", Json::parse(names.protocol->error_body(error))}});
    ApiCall call;
    call.stream = true;
    const auto writer = names.protocol->reply(call, {.id = "0", .created = 0, .model = "m"});
    writer->start({});
    for (const Record& record : records_of(writer->heartbeat())) {
      print({{"schema", names.event}, {"value", record.data}});
    }
    const bool typed = names.protocol == &responses() || names.protocol == &messages();
    for (const Record& record : records_of(writer->error(error))) {
      print({{"schema", typed ? names.event : names.error}, {"value", record.data}});
    }
  }
  if (!streams) print({{"schema", "TokenCount"}, {"value", Json::parse(count_tokens_body(7))}});
  return 0;
}
