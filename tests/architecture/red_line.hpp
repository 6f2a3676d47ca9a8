// SPDX-License-Identifier: Apache-2.0
// red_line.hpp - finds words that have no business in core: policy of hosts, device interfaces,
// model names. Core fixes mechanism only; a word like these is the first sign that it does not.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace red_line {

struct Hit {
  std::filesystem::path file;
  std::size_t line = 0;
  std::string word;
};

// The forbidden words in one line of text, in any case and inside identifiers: `lastSession`,
// `CACHE_SIZE`. Short words (kv, hip, agent, recap) must stand alone in an identifier: "ownership"
// and "recapture" are fine.
std::vector<std::string> words_in(std::string_view line);

// All hits in the files under `root` (a folder or a file). Pages (.md) are left out: they say what
// must not come in.
std::vector<Hit> scan(const std::filesystem::path& root);

}  // namespace red_line
