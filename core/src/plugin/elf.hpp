// SPDX-License-Identifier: Apache-2.0
// elf.hpp - the few facts of a shared object that are needed before it is loaded.
#pragma once

#include <frt/plugin.h>

#include <cstdint>
#include <string>

namespace frt::core {

struct ElfFacts {
  std::string card;  // content of section .frt.card without trailing zeros
  bool has_card = false;
  uint32_t sanitizer = FRT_SANITIZER_NONE;  // whose runtime it imports
};

// Reads them from an open file. Every offset and size of the file is checked against the file's
// length before it is used; tables are limited (see the .cpp). Throws as read_image() does.
ElfFacts read_elf(int descriptor, const std::string& name);

}  // namespace frt::core
