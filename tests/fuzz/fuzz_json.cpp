// SPDX-License-Identifier: Apache-2.0
// Any text is a JSON value or an error; a value can be copied, printed and read again. So that
// depth is found within small inputs, "\x01" + a count byte stand for that many, times 4096, of the
// next byte.
#include <frt/error.hpp>
#include <frt/io/json.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

std::string expanded(std::string_view input) {
  constexpr std::size_t kMost = std::size_t{4} << 20;
  std::string text;
  for (std::size_t i = 0; i < input.size(); ++i) {
    if (input[i] != '\x01' || i + 2 >= input.size()) {
      text += input[i];
      continue;
    }
    const std::size_t count = std::size_t{static_cast<unsigned char>(input[i + 1])} * 4096;
    if (text.size() + count <= kMost) text.append(count, input[i + 2]);
    i += 2;
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  using namespace frt::io;
  const std::string text = expanded({reinterpret_cast<const char*>(data), size});
  try {
    const Json value = parse_json(text, "input");
    const Json copy = value;
    if (copy != value) std::abort();
    // Integers beyond 64 bits are binary values, which JSON has no text for.
    const std::string printed = copy.dump();
    if (printed.find("\"subtype\"") == std::string::npos) parse_json(printed, "printed");
  } catch (const frt::Error&) {
  }
  return 0;
}
