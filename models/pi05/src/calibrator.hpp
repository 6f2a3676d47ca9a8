// SPDX-License-Identifier: Apache-2.0
// calibrator.hpp - measures the inputs of all products that can be FP8 (calibration.hpp), while a
// model without FP8 runs on real frames: frt.calibration/1.
#pragma once

#include <frt/calibration.h>

#include "calibration.hpp"
#include "engine.hpp"

namespace frt::pi05 {

class Calibrator {
 public:
  // Runs the engine eagerly on what is in its ports and notes the largest magnitude of every input,
  // over the rows that are valid. Waits.  [driver]
  void note(const Engine& engine, const Variant& variant);
  void forget() { measured_ = {}; }
  const Measured& measured() const noexcept { return measured_; }

 private:
  Measured measured_;
};

const frt_calibration_v1& calibration_table() noexcept;

}  // namespace frt::pi05
