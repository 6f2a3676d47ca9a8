// SPDX-License-Identifier: Apache-2.0
#include "world.hpp"

#include <algorithm>
#include <cmath>
#include <random>

namespace acme {
namespace {

constexpr double kLow = 0.12, kHigh = 0.88;  // where the centre of a disc may be
constexpr float kGround[3] = {24, 26, 32}, kWhite = 240;

double between(Point a, Point b) {
  return std::hypot(a.x - b.x, a.y - b.y);
}

void bounce(double& place, double& velocity) {
  place += velocity;
  if (place >= kLow && place <= kHigh) return;
  place = std::clamp(place, kLow, kHigh);
  velocity = -velocity;
}

}  // namespace

World::World(double drift) : drift_(drift), image_(std::size_t{3} * kSide * kSide) {
  // A step in real time should not allocate.
  path_.reserve(kMaxSteps + 1);
  goal_path_.reserve(kMaxSteps + 1);
}

void World::reset(uint64_t seed, std::optional<uint32_t> goal) {
  std::mt19937_64 random(seed);
  // Not std::uniform_real_distribution: its values depend on the library.
  const auto uniform = [&](double low, double high) {
    return low + (high - low) * (static_cast<double>(random() >> 11) * 0x1p-53);
  };
  const auto crowded = [&] {
    return between(discs_[0], discs_[1]) < 0.3 || between(discs_[0], discs_[2]) < 0.3 ||
           between(discs_[1], discs_[2]) < 0.3;
  };
  do {
    for (Point& disc : discs_) disc = {uniform(kLow, kHigh), uniform(kLow, kHigh)};
  } while (crowded());
  for (Point& velocity : velocities_) {
    const double angle = uniform(0, 6.283185307179586);
    velocity = {drift_ * std::cos(angle), drift_ * std::sin(angle)};
  }
  const auto chosen = static_cast<uint32_t>(random() % kDiscs);
  goal_ = goal.value_or(chosen);
  do {
    point_ = {uniform(0.08, 0.92), uniform(0.08, 0.92)};
  } while (distance() < 0.3);
  steps_ = 0;
  caught_ = false;
  path_.assign(1, point_);
  goal_path_.assign(1, discs_[goal_]);
}

void World::set_goal(uint32_t goal) {
  goal_ = goal;
  caught_ = false;
}

void World::step(double dx, double dy) {
  point_ = {std::clamp(point_.x + dx, 0.03, 0.97), std::clamp(point_.y + dy, 0.03, 0.97)};
  for (uint32_t i = 0; i < kDiscs; ++i) {
    bounce(discs_[i].x, velocities_[i].x);
    bounce(discs_[i].y, velocities_[i].y);
  }
  ++steps_;
  if (path_.size() < path_.capacity()) {
    path_.push_back(point_);
    goal_path_.push_back(discs_[goal_]);
  }
  caught_ = caught_ || distance() < kCaught;
}

double World::distance() const {
  return between(point_, discs_[goal_]);
}

void World::look() {
  state_ = {static_cast<float>(point_.x), static_cast<float>(point_.y)};
  for (uint32_t i = 0; i < kSide * kSide; ++i) {
    const double x = i % kSide + 0.5, y = static_cast<double>(i / kSide) + 0.5;
    float pixel[3] = {kGround[0], kGround[1], kGround[2]};
    // A disc with a soft edge, over what is there.
    const auto paint = [&](Point center, double radius, auto color) {
      const double far = std::hypot(x - center.x * kSide, y - center.y * kSide);
      const auto cover = static_cast<float>(std::clamp(radius * kSide + 0.5 - far, 0.0, 1.0));
      for (int c = 0; c < 3; ++c) pixel[c] += (color(c) - pixel[c]) * cover;
    };
    for (uint32_t disc = 0; disc < kDiscs; ++disc) {
      paint(discs_[disc], kDiscRadius, [&](int c) { return float(kColors[disc][c]); });
    }
    paint(point_, kPointRadius, [](int) { return kWhite; });
    for (uint32_t c = 0; c < 3; ++c) image_[3 * i + c] = static_cast<uint8_t>(pixel[c] + 0.5f);
  }
}

}  // namespace acme
