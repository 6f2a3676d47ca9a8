// SPDX-License-Identifier: Apache-2.0
// layouts.hpp - the layouts of one set of headers, as data.
#pragma once

#include <cstddef>

struct Layout {
  const char* type;
  const char* last_member;  // of the frozen version
  std::size_t size;
  std::size_t last_offset;
  bool can_grow;  // starts with struct_size
};

const Layout* frozen_layouts(std::size_t* count);
const Layout* current_layouts(std::size_t* count);
