// SPDX-License-Identifier: Apache-2.0
// selftest_run.hpp - engines beside the serving one, driven by hand: other horizons, step counts,
// samples and branches on the same weights, run eagerly and tapped.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "model.hpp"

namespace frt::pi05 {

// What one inference gets. Everything is written before the run.
struct RunInput {
  std::vector<std::byte> images;  // all views, in the engine's pixel type
  std::vector<std::int32_t> mask;
  std::vector<std::vector<std::int32_t>> prompts;  // one per branch
  std::vector<float> noise;
  std::int64_t steps = 0, samples = 1;
  std::vector<float> beta = {};      // one per step and guided branch; empty: none
  std::vector<float> previous = {};  // with the next three: continuation
  std::vector<float> weights = {};
  frt_policy_continuation control = {};
};

// Tensors by name: "v3" is v of step 3, "prefix_k1" that of layer 1.
using Traced = std::map<std::string, std::vector<float>>;

class Runner {
 public:
  Runner(const Model& model, const Setup& setup)
      : model_(model),
        engine_(model.parts().states, model.parts().context, model.config(), model.parts().weights,
                *model.parts().source, model.parts().precision, setup) {}

  // Runs and returns every tensor with `traced`, else the actions alone. `room`: prompt rows of the
  // variant, 0: as many as the longest prompt has.
  Traced run(const RunInput& input, bool traced, std::int64_t room = 0);

  const Engine& engine() const noexcept { return engine_; }

 private:
  void write(const RunInput& input);
  std::vector<float> fetch(const TapView& view, std::int64_t rows) const;

  const Model& model_;
  Engine engine_;
};

}  // namespace frt::pi05
