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
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace reach {

struct Point {
  double x = 0, y = 0;
};

class World {
 public:
  static constexpr uint32_t kImage = 28;
  static constexpr uint32_t kDiscs = 3;
  static constexpr uint32_t kMaxTicks = 40;
  static constexpr double kDiscRadius = 0.10, kPointRadius = 0.05;
  static constexpr double kMaxStep = 0.06, kReached = 0.05;
  static constexpr double kLow = 0.03, kHigh = 0.97;  // where the point may be

  World();

  // A new episode; equal seeds make equal ones. Without a disc the seed chooses it.
  void reset(uint64_t seed, std::optional<uint32_t> disc = {});
  // Another disc from now on.
  void choose(uint32_t disc);
  // Makes image() and state() what is there now.
  void look();
  void apply(std::span<const double> action);
  // What an operator does: half of the way that is left, at most kMaxStep.
  void expert_action(std::span<double> action) const;

  const std::vector<uint8_t>& image() const noexcept { return image_; }  // (kImage, kImage, 3)
  const std::array<float, 2>& state() const noexcept { return state_; }  // the point
  bool succeeded() const noexcept { return succeeded_; }
  bool over() const noexcept { return ticks_ >= kMaxTicks; }
  uint32_t goal() const noexcept { return goal_; }
  const std::array<Point, kDiscs>& discs() const noexcept { return discs_; }
  Point point() const noexcept { return point_; }
  double distance() const noexcept;  // of the point from the named disc's centre
  // The point since reset(): where it began, then tick by tick, kMaxTicks of them.
  const std::vector<Point>& path() const noexcept { return path_; }

  static const char* name_of(uint32_t disc) noexcept;  // "red"
  static std::string instruction_of(uint32_t disc);
  static const std::array<std::array<uint8_t, 3>, kDiscs>& colors() noexcept;

 private:
  std::array<Point, kDiscs> discs_{};
  Point point_;
  std::vector<Point> path_;
  uint32_t goal_ = 0, ticks_ = 0;
  bool succeeded_ = false;
  std::vector<uint8_t> image_;
  std::array<float, 2> state_{};
};

}  // namespace reach
