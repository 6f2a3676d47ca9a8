// SPDX-License-Identifier: Apache-2.0
// Compiled twice: against the frozen headers, and against today's.
#include "layouts.hpp"

#include "headers.inc"

namespace {

template <class T>
constexpr bool starts_with_size() {
  return requires(T value) {
    value.struct_size;
  };
}

#define FRT_LAYOUT(type, last) \
  {#type, #last, sizeof(type), offsetof(type, last), starts_with_size<type>()},
constexpr Layout kLayouts[] = {
#include "layouts.inc"
};

}  // namespace

const Layout* FRT_LAYOUT_FUNCTION(std::size_t* count) {
  *count = sizeof(kLayouts) / sizeof(kLayouts[0]);
  return kLayouts;
}
