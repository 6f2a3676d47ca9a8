// SPDX-License-Identifier: Apache-2.0
// engine_world.hpp - a small model for an engine, and what a request gives alone. The demo model's
// drafts are often accepted, those of the tiny one never.
#pragma once

#include <cstdint>
#include <frt/core/capsules.hpp>
#include <frt/core/state.hpp>
#include <memory>
#include <string>
#include <utility>

#include "lm/capsules/registry.hpp"
#include "lm/generator.hpp"
#include "model_rig.hpp"
#include "told.hpp"

namespace frt::test {

struct EngineWorld {
  static constexpr uint64_t kChunk = 16;

  explicit EngineWorld(const std::string& options,
                       const std::string& checkpoint = "synthetic:qwen3.6-tiny")
      : rig(checkpoint, "prefill_chunk = 16\n" + options) {}

  ModelRig rig;
  host::LmModel model{rig.context, core::state_table(), core::capsules_table(),
                      rig.table,   rig.model,           "m"};

  std::unique_ptr<host::CapsuleRegistry> registry(host::CapsuleOptions options) const {
    return std::make_unique<host::CapsuleRegistry>(rig.context, model.capsules(),
                                                   std::move(options));
  }
  // What the request gives alone, read from the start in slot 0. Not while an engine lives.
  host::GenerationResult alone(const host::EngineRequest& asked, uint32_t choice = 0) const {
    host::GenerationRequest request;
    request.prompt = asked.prompt;
    request.max_new = asked.max_new;
    request.sampling = asked.sampling;
    request.sampling.seed += choice;
    request.stop_ids = asked.stop_ids;
    request.reuse = false;
    host::SessionOptions plain;
    plain.speculation = host::Drafting::kOff;
    return host::Generator(model, 0, nullptr, plain).run(request);
  }
};

inline host::EngineOptions engine_options() {
  host::EngineOptions options;
  options.session.spacing = EngineWorld::kChunk;
  options.session.min_tokens = 1;
  return options;
}

}  // namespace frt::test
