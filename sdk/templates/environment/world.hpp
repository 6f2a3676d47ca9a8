// SPDX-License-Identifier: Apache-2.0
// The world of acme.catch: a white point, three coloured discs that drift, one of which is to be
// caught. Everything lies in the unit square, y downwards; a disc bounces off its edges.
//
// An episode depends on its seed, its goal and the actions alone: the only source of chance is the
// generator that reset() seeds.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace acme {

struct Point {
  double x = 0, y = 0;
};

class World {
 public:
  static constexpr uint32_t kSide = 28;  // pixels of the image
  static constexpr uint32_t kDiscs = 3;
  static constexpr uint32_t kMaxSteps = 60;
  static constexpr double kMaxStep = 0.06;  // of the point, in x and in y
  static constexpr double kDiscRadius = 0.10, kPointRadius = 0.05, kCaught = 0.06;
  static constexpr const char* kNames[kDiscs] = {"red", "green", "blue"};
  static constexpr uint8_t kColors[kDiscs][3] = {{220, 60, 50}, {60, 190, 80}, {70, 110, 230}};

  // `drift`: how far a disc goes in one step.
  explicit World(double drift);

  void reset(uint64_t seed, std::optional<uint32_t> goal);
  void set_goal(uint32_t goal);
  // One step of the point, and of the discs.
  void step(double dx, double dy);
  // Makes image() and state() what is there now.
  void look();

  const std::vector<uint8_t>& image() const { return image_; }  // (kSide, kSide, 3), RGB
  const std::array<float, 2>& state() const { return state_; }  // the point
  const std::array<Point, kDiscs>& discs() const { return discs_; }
  const std::vector<Point>& path() const { return path_; }            // the point since reset()
  const std::vector<Point>& goal_path() const { return goal_path_; }  // the goal, the same
  Point point() const { return point_; }
  uint32_t goal() const { return goal_; }
  uint32_t steps() const { return steps_; }
  bool caught() const { return caught_; }
  double distance() const;  // of the point from the goal's centre

 private:
  double drift_;
  std::array<Point, kDiscs> discs_{}, velocities_{};
  Point point_;
  std::vector<Point> path_, goal_path_;
  uint32_t goal_ = 0, steps_ = 0;
  bool caught_ = false;
  std::vector<uint8_t> image_;
  std::array<float, 2> state_{};
};

}  // namespace acme
