// SPDX-License-Identifier: Apache-2.0
// world.hpp - the reaching task: a white point, three coloured discs, an instruction that names
// one.
//
// The world is the unit square, y downwards. An action is a step (dx, dy), at most kMaxStep long.
// The episode succeeds when the point is within kReached of the named disc's centre, and is over
// after kMaxTicks. What the policy sees is an image of kImage x kImage pixels.
// tools/train-reach/task.py is the twin that the policy was trained in: same drawing, same motion,
// same end.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "robot/environment.hpp"

namespace frt::host {

struct Point {
  double x = 0, y = 0;
};

class ReachWorld final : public Environment {
 public:
  static constexpr uint32_t kImage = 28;
  static constexpr uint32_t kDiscs = 3;
  static constexpr uint32_t kMaxTicks = 40;
  static constexpr double kDiscRadius = 0.10, kPointRadius = 0.05;
  static constexpr double kMaxStep = 0.06, kReached = 0.05;
  static constexpr double kLow = 0.03, kHigh = 0.97;  // where the point may be

  // `image_name`, `state_name`: as the policy names them. `suffix` is put behind each instruction.
  explicit ReachWorld(std::string image_name = "observation/image",
                      std::string state_name = "observation/state", std::string suffix = {});

  void reset(uint64_t seed) override;
  const frt_observation& observe() override;
  std::span<const uint8_t> images() const override { return image_; }
  std::span<const float> state() const override { return state_; }
  uint32_t action_dim() const override { return 2; }
  void apply(std::span<const double> action) override;
  bool operator_action(std::span<double> action) override;
  bool succeeded() const override { return succeeded_; }
  bool over() const override { return ticks_ >= kMaxTicks; }
  const std::string& instruction() const override { return instruction_; }
  std::vector<EnvironmentSubgoal> subgoals() const override;  // one a disc
  void choose(std::size_t disc) override;
  std::unique_ptr<EpisodePicture> picture() const override;  // picture.hpp

  static std::string instruction_of(uint32_t disc);
  uint32_t goal() const noexcept { return goal_; }
  const std::array<Point, kDiscs>& discs() const noexcept { return discs_; }
  Point point() const noexcept { return point_; }
  // The point since reset(): where it began, then tick by tick.
  const std::vector<Point>& path() const noexcept { return path_; }
  static const std::array<std::array<uint8_t, 3>, kDiscs>& colors() noexcept;

 private:
  void draw();

  std::string image_name_, state_name_, suffix_, instruction_;
  std::array<Point, kDiscs> discs_{};
  Point point_;
  std::vector<Point> path_;
  uint32_t goal_ = 0, ticks_ = 0;
  bool succeeded_ = false;
  std::vector<uint8_t> image_;  // (kImage, kImage, 3)
  std::array<float, 2> state_{};
  std::array<frt_array, 2> arrays_{};
  frt_observation observation_{};
};

}  // namespace frt::host
