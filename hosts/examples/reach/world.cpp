// SPDX-License-Identifier: Apache-2.0
#include "examples/reach/world.hpp"

#include <algorithm>
#include <cmath>
#include <random>

namespace reach {
namespace {

using Color = std::array<float, 3>;
constexpr Color kBackground = {24, 26, 32}, kPoint = {240, 240, 240};
constexpr const char* kNames[World::kDiscs] = {"red", "green", "blue"};

double between(Point a, Point b) {
  return std::hypot(a.x - b.x, a.y - b.y);
}

}  // namespace

const std::array<std::array<uint8_t, 3>, World::kDiscs>& World::colors() noexcept {
  static constexpr std::array<std::array<uint8_t, 3>, kDiscs> kColors = {
      {{220, 60, 50}, {60, 190, 80}, {70, 110, 230}}};
  return kColors;
}

World::World() : image_(std::size_t{3} * kImage * kImage) {
  path_.reserve(kMaxTicks + 1);
}

const char* World::name_of(uint32_t disc) noexcept {
  return kNames[disc % kDiscs];
}

std::string World::instruction_of(uint32_t disc) {
  return std::string("reach the ") + name_of(disc) + " disc";
}

void World::choose(uint32_t disc) {
  goal_ = disc % kDiscs;
  succeeded_ = false;
}

void World::reset(uint64_t seed, std::optional<uint32_t> disc) {
  std::mt19937_64 random(seed);
  // Not std::uniform_real_distribution: its values depend on the library.
  const auto uniform = [&](double low, double high) {
    return low + (high - low) * (static_cast<double>(random() >> 11) * 0x1p-53);
  };
  const auto apart = [&] {
    return between(discs_[0], discs_[1]) >= 0.3 && between(discs_[0], discs_[2]) >= 0.3 &&
           between(discs_[1], discs_[2]) >= 0.3;
  };
  do {
    for (Point& center : discs_) center = {uniform(0.12, 0.88), uniform(0.12, 0.88)};
  } while (!apart());
  const auto chosen = static_cast<uint32_t>(random() % kDiscs);
  choose(disc.value_or(chosen));
  do {
    point_ = {uniform(0.08, 0.92), uniform(0.08, 0.92)};
  } while (distance() < 0.3);
  ticks_ = 0;
  path_.assign(1, point_);
}

void World::look() {
  struct Shape {
    Point center;
    float radius;
    Color color;
  };
  std::array<Shape, kDiscs + 1> shapes;
  for (uint32_t i = 0; i < kDiscs; ++i) {
    const auto& color = colors()[i];
    shapes[i] = {discs_[i],
                 static_cast<float>(kDiscRadius * kImage + 0.5),
                 {float(color[0]), float(color[1]), float(color[2])}};
  }
  shapes[kDiscs] = {point_, static_cast<float>(kPointRadius * kImage + 0.5), kPoint};
  for (uint32_t y = 0; y < kImage; ++y) {
    for (uint32_t x = 0; x < kImage; ++x) {
      Color pixel = kBackground;
      for (const Shape& shape : shapes) {
        const float dx = float(x) + 0.5f - static_cast<float>(shape.center.x * kImage);
        const float dy = float(y) + 0.5f - static_cast<float>(shape.center.y * kImage);
        const float cover = std::clamp(shape.radius - std::sqrt(dx * dx + dy * dy), 0.0f, 1.0f);
        for (std::size_t c = 0; c < 3; ++c) {
          pixel[c] = pixel[c] * (1 - cover) + shape.color[c] * cover;
        }
      }
      for (std::size_t c = 0; c < 3; ++c) {
        image_[3 * (std::size_t{y} * kImage + x) + c] = static_cast<uint8_t>(pixel[c] + 0.5f);
      }
    }
  }
  state_ = {static_cast<float>(point_.x), static_cast<float>(point_.y)};
}

double World::distance() const noexcept {
  return between(point_, discs_[goal_]);
}

void World::apply(std::span<const double> action) {
  const double length = std::hypot(action[0], action[1]);
  const double scale = length > kMaxStep ? kMaxStep / length : 1;
  point_.x = std::clamp(point_.x + action[0] * scale, kLow, kHigh);
  point_.y = std::clamp(point_.y + action[1] * scale, kLow, kHigh);
  ++ticks_;
  if (path_.size() < path_.capacity()) path_.push_back(point_);
  succeeded_ = succeeded_ || distance() < kReached;
}

void World::expert_action(std::span<double> action) const {
  const Point goal = discs_[goal_];
  const double far = std::max(distance(), 1e-9);
  const double step = std::min(kMaxStep, 0.5 * far) / far;
  action[0] = (goal.x - point_.x) * step;
  action[1] = (goal.y - point_.y) * step;
}

}  // namespace reach
