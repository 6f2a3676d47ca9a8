// SPDX-License-Identifier: Apache-2.0
// Any events, even in an order that no model brings about, are a reply. The first byte names the
// protocol and whether it is streamed; then each event is a kind, a length and its bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "http/api/protocol.hpp"

using namespace frt::host;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const Protocol* const protocols[] = {&chat_completions(), &completions(), &responses(),
                                       &messages()};
  ApiCall call;
  call.prompts = {"x"};
  call.stream = data[0] & 4;
  call.log_probabilities = data[0] & 8;
  call.parallel_tool_calls = data[0] & 16;
  call.tool_names = {{.name = "f", .client_name = "f", .space = {}},
                     {.name = "c", .client_name = "c", .space = "s", .custom = true}};
  const auto writer = protocols[data[0] % 4]->reply(call, {.id = "0", .created = 0, .model = "m"});
  std::string bytes = writer->start({});
  for (std::size_t at = 1; at + 1 < size;) {
    const auto kind = static_cast<ChatEvent::Kind>(data[at] % 5);
    const std::size_t length = std::min<std::size_t>(data[at + 1], size - at - 2);
    const std::string text(reinterpret_cast<const char*>(data) + at + 2, length);
    writer->log_probability(0, {.bytes = text, .log_probability = -1.0f});
    bytes += writer->event(0, {.kind = kind, .call = data[at] / 5u, .text = text});
    at += 2 + length;
  }
  bytes += writer->heartbeat();
  bytes += writer->finish(0, {});
  bytes += writer->end({}, nullptr);
  if (bytes.empty() || (call.stream && !bytes.ends_with("\n\n"))) std::abort();
  return 0;
}
