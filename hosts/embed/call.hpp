// SPDX-License-Identifier: Apache-2.0
// call.hpp - what every function of the C API does with its arguments.
#pragma once

#include <frt/embed.h>
#include <frt/role/contracts.hpp>
#include <frt/table.hpp>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

FRT_CONTRACT(frt_runtime_options, "frt_runtime_options", progress_user);
FRT_CONTRACT(frt_lm_options, "frt_lm_options", queue_limit);
FRT_CONTRACT(frt_server_options, "frt_server_options", drain_ms);
FRT_CONTRACT(frt_generate_request, "frt_generate_request", deadline_ms);
FRT_CONTRACT(frt_infer_options, "frt_infer_options", draw);

namespace frt::embed {

// Who gave the structs that are read.
inline constexpr const char* kCaller = "the program";
// The most bytes of one text, and entries of one list, that a caller gives.
inline constexpr uint64_t kMostText = uint64_t{64} << 20;
inline constexpr uint64_t kMostEntries = uint64_t{1} << 28;

template <class Pointer>
Pointer required(Pointer pointer, const char* name) {
  if (!pointer) throw Error(FRT_ERR_INVALID_ARGUMENT, std::string(name) + " is NULL");
  return pointer;
}

// A list that may be empty.
template <class Element>
std::span<const Element> list_of(const Element* first, uint64_t count, const char* name) {
  if (count == 0) return {};
  if (count > kMostEntries) {
    throw Error(FRT_ERR_OUT_OF_RANGE,
                std::string(name) + " has " + std::to_string(count) + " entries");
  }
  return {required(first, name), count};
}

inline std::vector<std::string> texts_of(const char* const* first, uint64_t count,
                                         const char* name) {
  std::vector<std::string> texts;
  for (const char* text : list_of(first, count, name)) texts.emplace_back(required(text, name));
  return texts;
}

// Writes as much as there is room for.
template <class Element>
void give_list(std::span<const Element> all, Element* room, uint64_t capacity, uint64_t* count) {
  required(count, "count");
  if (capacity > 0) required(room, "the room");
  const auto written = static_cast<std::ptrdiff_t>(std::min<uint64_t>(all.size(), capacity));
  std::copy(all.begin(), all.begin() + written, room);
  *count = all.size();
}

inline void give_text(std::string_view text, char* room, uint64_t capacity, uint64_t* count) {
  give_list(std::span<const char>(text), room, capacity, count);
  if (text.size() < capacity) room[text.size()] = '\0';
}

// Throws FRT_ERR_ABI for a struct that says no size that it can have.
template <class Struct>
void require_size(const Struct* out, const char* name) {
  const uint32_t size = required(out, name)->struct_size;
  if (size >= 2 * sizeof(uint32_t) && size <= FRT_STRUCT_MAX) return;
  throw Error(FRT_ERR_ABI, std::string(name) + " says that it has " + std::to_string(size) +
                               " bytes; set struct_size to its sizeof before the call");
}

// Fills the caller's struct.
template <class Struct>
void give(Struct* out, const Struct& known, const char* name) {
  require_size(out, name);
  fill(out, known);
}

}  // namespace frt::embed
