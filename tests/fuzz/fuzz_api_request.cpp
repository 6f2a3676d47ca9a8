// SPDX-License-Identifier: Apache-2.0
// Any bytes are a call of the protocol that the first byte names, or a refusal.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "http/api/protocol.hpp"

using namespace frt::host;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const Protocol* const protocols[] = {&chat_completions(), &completions(), &responses(),
                                       &messages()};
  const Protocol& protocol = *protocols[data[0] % 4];
  try {
    protocol.parse({reinterpret_cast<const char*>(data) + 1, size - 1}, {}, {});
  } catch (const ApiError& error) {
    protocol.error_body(error);
  }
  return 0;
}
