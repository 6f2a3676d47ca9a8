// SPDX-License-Identifier: Apache-2.0
// faulty.hpp - what the faulty plugins share: which defect this copy of the file has, and a card
// and a descriptor that can have one.
//
// A copy of the file is loaded once, so each has the defect that FRT_TEST_DEFECT named at that
// moment ("open_throws"); none if it is not set.
#pragma once

#include <frt/plugin.h>
#include <frt/plugin.hpp>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

namespace faulty {

inline const std::string& defect() {
  static const std::string kDefect = [] {
    const char* named = std::getenv("FRT_TEST_DEFECT");
    return std::string(named ? named : "");
  }();
  return kDefect;
}

inline bool is(std::string_view name) {
  return defect() == name;
}

// A code that no version defines, with or without a text.
inline constexpr frt_status kUnknownStatus = 12345;

// Sizes that nobody means.
template <class Table>
void spoil_size(Table& table, const std::string& name) {
  if (is(name + "_size_3")) table.struct_size = 3;
  if (is(name + "_size_deadbeef")) table.struct_size = 0xdeadbeef;
  if (is(name + "_size_huge")) table.struct_size = 0xffffffff;
}

// What no text is.
inline constexpr const char* kGarbage = "\xff\xfe\x1b[2J";

// 3,000 bytes, three a character, so that a cut at any byte but one in three halves one.
inline std::string long_text() {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "\u4e2d";
  return text;
}

}  // namespace faulty

// The card (with a summary that a test can overwrite) and a descriptor that is changed at load.
#define FAULTY_PLUGIN(Class, word, plugin_id)                                      \
  FRT_PLUGIN_CARD("id = \"" plugin_id "\"\nkind = \"" #word                        \
                  "\"\nabi = \"0.9\"\nversion = \"1\"\nsummary = \"----\"\n");     \
  extern "C" __attribute__((visibility("default"))) frt_plugin_desc frt_plugin_v1; \
  frt_plugin_desc frt_plugin_v1 = [] {                                             \
    using Functions = frt::detail::PluginTrampolines<Class>;                       \
    frt_plugin_desc d = {sizeof(frt_plugin_desc),                                  \
                         FRT_ABI_MAJOR,                                            \
                         FRT_ABI_MINOR,                                            \
                         FRT_PLUGIN_KIND_##word,                                   \
                         FRT_BUILD_SANITIZER,                                      \
                         plugin_id,                                                \
                         "1",                                                      \
                         "test",                                                   \
                         &Class::open,                                             \
                         &Functions::close,                                        \
                         &Class::any_extension};                                   \
    faulty::spoil_size(d, "descriptor");                                           \
    if (faulty::is("descriptor_abi")) d.abi_major = 2;                             \
    if (faulty::is("descriptor_no_open")) d.open = nullptr;                        \
    if (faulty::is("descriptor_no_id")) d.id = nullptr;                            \
    if (faulty::is("descriptor_no_build")) d.build = nullptr;                      \
    if (faulty::is("descriptor_garbage_version")) d.version = faulty::kGarbage;    \
    if (faulty::is("descriptor_other_id")) d.id = "test.other";                    \
    if (faulty::is("descriptor_other_kind")) d.kind = 7;                           \
    return d;                                                                      \
  }()
