// SPDX-License-Identifier: Apache-2.0
// observer.hpp - from a robot's arrays to the ports of an engine, and from the network's actions to
// the robot's: what frt/observation.h and the prompts of the role do.
//
// Everything is checked and converted into pinned memory before the first copy is submitted, so an
// observation that is refused changes nothing. One thread at a time, but finish(), which is [any].
#pragma once

#include <frt/observation.h>

#include <cstdint>
#include <frt/models/images.hpp>
#include <frt/models/sentencepiece.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine.hpp"
#include "interface.hpp"

namespace frt::pi05 {

// Pinned memory on its way to the device: reused once the copies before have been made.
class Staging {
 public:
  Staging(const Context& context, std::uint64_t bytes, const std::string& name)
      : memory_(context.alloc(FRT_SPACE_HOST_PINNED, bytes, name)),
        copied_(context.create_event()) {}

  // Waits until what was submitted before has been read.  [driver]
  std::byte* begin();
  // One submission, in order on `stream`; `target` and the offset in this memory each.  [driver]
  struct Part {
    frt_buffer target;
    std::uint64_t target_offset, offset, bytes;
  };
  void submit(std::span<const Part> parts, frt_stream stream);

 private:
  Buffer memory_;
  Event copied_;
  bool in_flight_ = false;
  std::vector<frt_copy> copies_;
};

// Where prompts get their tags from.
struct PromptForm {
  std::string form = "openpi_clean";
  std::vector<std::string> tags;  // of every branch but the last; empty without guidance
};

class Observer {
 public:
  // `tokenizer` may be null. Borrows everything but the interface.  [setup]
  Observer(const Engine& engine, const Config& config, Interface face,
           const models::SentencePiece* tokenizer, PromptForm form);

  void write(const frt_observation& observation, frt_stream stream, frt_observed& observed);
  void finish(const frt_observed& observed, const float* actions, double* robot) const;

  // The prompt of one branch; `state` normalised, or empty where the prompt has none.
  // `positive` false: with the tag of the other advantage.
  std::vector<std::int32_t> prompt_ids(std::size_t branch, std::string_view task,
                                       std::span<const double> state, bool positive = true) const;
  // Checks and uploads ids of one branch.
  void set_ids(std::size_t branch, std::span<const std::int32_t> ids, frt_stream stream);
  // Raw state to normalised.
  std::vector<double> normalised(std::vector<double> state) const;

  const Interface& face() const noexcept { return face_; }
  const models::SentencePiece* tokenizer() const noexcept { return tokenizer_; }

 private:
  // Offsets of the parts of an observation in staging memory.
  struct Places {
    std::uint64_t images = 0, mask = 0, tokens = 0, lengths = 0, noise = 0, bytes = 0;
  };
  static Places places(const Engine& engine, const Dims& dims);
  const frt_array* find(const frt_observation& observation, const std::string& name) const;
  void write_image(const frt_array& array, std::size_t view, std::byte* to);
  std::vector<double> gather_state(const frt_observation& observation) const;
  void require_statistics() const;
  bool wants_positive(const char* options) const;
  void check_length(std::size_t tokens) const;
  void check_ids(std::span<const std::int32_t> ids) const;  // all in the vocabulary

  const Engine& engine_;
  const Dims& dims_;
  std::int64_t max_prompt_;
  Interface face_;
  const models::SentencePiece* tokenizer_;
  PromptForm form_;
  Places places_;
  Staging staging_;         // of whole observations
  Staging prompt_staging_;  // of one prompt
  std::vector<models::ImageResizer> resizers_;
  std::vector<std::uint8_t> bytes_;  // an image as HWC
  std::vector<float> floats_;
};

}  // namespace frt::pi05
