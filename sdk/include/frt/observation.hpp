// SPDX-License-Identifier: Apache-2.0
// frt/observation.hpp - taking an observation from a host: what frt/observation.h promises of it,
// checked once, so that no reader behind looks at a NULL pointer or at a shape that cannot be.
// Header only.
#pragma once

#include <frt/observation.h>

#include <cstdint>
#include <cstring>
#include <frt/error.hpp>
#include <frt/role/contracts.hpp>
#include <frt/table.hpp>
#include <string>

namespace frt {

// The elements of an array of a legal shape. Throws FRT_ERR_INVALID_ARGUMENT with its name for
// another.  [any]
inline uint64_t array_elements(const frt_array& array) {
  constexpr int64_t kMost = FRT_ARRAY_MAX_ELEMENTS;
  if (array.rank > FRT_ARRAY_MAX_RANK) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, std::string("observation: '") + array.name + "' has " +
                                              std::to_string(array.rank) + " dimensions, at most " +
                                              std::to_string(FRT_ARRAY_MAX_RANK) + " are possible");
  }
  int64_t count = 1;
  for (uint32_t i = 0; i < array.rank; ++i) {
    const int64_t size = array.shape[i];
    if (size < 0 || size > kMost || (size > 0 && count > kMost / size)) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, std::string("observation: '") + array.name + "' has " +
                                                std::to_string(size) +
                                                " as a size; none is negative, and the array has "
                                                "at most 2^40 elements");
    }
    count *= size;
  }
  return static_cast<uint64_t>(count);
}

// A copy of the observation that `sender` gave, as read_table(). Throws FRT_ERR_INVALID_ARGUMENT
// for NULL where frt/observation.h does not allow it, for what is beyond its limits, for an element
// type of less than a byte, for an instruction that is given twice, and as array_elements();
// FRT_ERR_UNSUPPORTED for an element type that this version does not know.  [any]
inline frt_observation read_observation(const frt_observation* given, std::string_view sender) {
  const auto observation = read_table<frt_observation>(given, sender);
  const auto refuse = [](const std::string& what) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "observation: " + what);
  };
  if (observation.array_count > FRT_OBSERVATION_MAX_ARRAYS) {
    refuse(std::to_string(observation.array_count) + " arrays; at most " +
           std::to_string(FRT_OBSERVATION_MAX_ARRAYS) + " are taken");
  }
  if (observation.array_count > 0 && !observation.arrays) refuse("array_count without arrays");
  for (uint32_t i = 0; i < observation.array_count; ++i) {
    const frt_array& array = observation.arrays[i];
    if (!array.name) refuse("array " + std::to_string(i) + " has no name");
    if (array.dtype >= FRT_DTYPE_COUNT) {
      throw Error(FRT_ERR_UNSUPPORTED, std::string("observation: '") + array.name +
                                           "' has the type " + std::to_string(array.dtype) +
                                           ", which this version does not know");
    }
    if (dtype_bits(array.dtype) < 8) {
      refuse(std::string("'") + array.name + "' has the type " + std::to_string(array.dtype) +
             ", which is none that arrays have");
    }
    if (array_elements(array) > 0 && !array.data) {
      refuse(std::string("'") + array.name + "' has no data");
    }
  }
  if (observation.prompt_tokens && observation.prompt_token_count == 0) {
    refuse("prompt_tokens without ids; leave it NULL for the instruction that the checkpoint has");
  }
  if (observation.prompt_token_count > 0 && !observation.prompt_tokens) {
    refuse("prompt_token_count without prompt_tokens");
  }
  if (observation.prompt_token_count > FRT_OBSERVATION_MAX_PROMPT) {
    refuse(std::to_string(observation.prompt_token_count) + " prompt_tokens; at most " +
           std::to_string(FRT_OBSERVATION_MAX_PROMPT) + " are taken");
  }
  if (observation.prompt &&
      ::strnlen(observation.prompt, FRT_OBSERVATION_MAX_PROMPT) == FRT_OBSERVATION_MAX_PROMPT) {
    refuse("the prompt has no end within " + std::to_string(FRT_OBSERVATION_MAX_PROMPT) + " bytes");
  }
  if (observation.prompt && observation.prompt_tokens) {
    refuse("prompt and prompt_tokens; give one of them");
  }
  return observation;
}

}  // namespace frt
