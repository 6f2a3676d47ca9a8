// SPDX-License-Identifier: Apache-2.0
#include "examples/reach/world.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

namespace frt::host {
namespace {

using Color = std::array<float, 3>;
constexpr Color kBackground = {24, 26, 32}, kPoint = {240, 240, 240};
constexpr const char* kNames[ReachWorld::kDiscs] = {"red", "green", "blue"};

double distance(Point a, Point b) {
  return std::hypot(a.x - b.x, a.y - b.y);
}

}  // namespace

const std::array<std::array<uint8_t, 3>, ReachWorld::kDiscs>& ReachWorld::colors() noexcept {
  static constexpr std::array<std::array<uint8_t, 3>, kDiscs> kColors = {
      {{220, 60, 50}, {60, 190, 80}, {70, 110, 230}}};
  return kColors;
}

ReachWorld::ReachWorld(std::string image_name, std::string state_name, std::string suffix)
    : image_name_(std::move(image_name)),
      state_name_(std::move(state_name)),
      suffix_(std::move(suffix)),
      image_(std::size_t{3} * kImage * kImage) {
  path_.reserve(kMaxTicks + 1);
  arrays_[0].name = image_name_.c_str();
  arrays_[0].data = image_.data();
  arrays_[0].dtype = FRT_DTYPE_U8;
  arrays_[0].rank = 3;
  arrays_[0].shape[0] = arrays_[0].shape[1] = kImage;
  arrays_[0].shape[2] = 3;
  arrays_[1].name = state_name_.c_str();
  arrays_[1].data = state_.data();
  arrays_[1].dtype = FRT_DTYPE_F32;
  arrays_[1].rank = 1;
  arrays_[1].shape[0] = 2;
  observation_.struct_size = sizeof(observation_);
  observation_.array_count = arrays_.size();
  observation_.arrays = arrays_.data();
}

std::string ReachWorld::instruction_of(uint32_t disc) {
  return std::string("reach the ") + kNames[disc % kDiscs] + " disc";
}

std::vector<EnvironmentSubgoal> ReachWorld::subgoals() const {
  std::vector<EnvironmentSubgoal> subgoals;
  for (uint32_t disc = 0; disc < kDiscs; ++disc) {
    subgoals.push_back({kNames[disc], instruction_of(disc)});
  }
  return subgoals;
}

void ReachWorld::choose(std::size_t disc) {
  goal_ = static_cast<uint32_t>(disc % kDiscs);
  instruction_ = instruction_of(goal_) + suffix_;
  succeeded_ = false;
}

void ReachWorld::reset(uint64_t seed) {
  std::mt19937_64 random(seed);
  // Not std::uniform_real_distribution: its values depend on the library.
  const auto uniform = [&](double low, double high) {
    return low + (high - low) * (static_cast<double>(random() >> 11) * 0x1p-53);
  };
  const auto apart = [&] {
    return distance(discs_[0], discs_[1]) >= 0.3 && distance(discs_[0], discs_[2]) >= 0.3 &&
           distance(discs_[1], discs_[2]) >= 0.3;
  };
  do {
    for (Point& disc : discs_) disc = {uniform(0.12, 0.88), uniform(0.12, 0.88)};
  } while (!apart());
  choose(random() % kDiscs);
  do {
    point_ = {uniform(0.08, 0.92), uniform(0.08, 0.92)};
  } while (distance(point_, discs_[goal_]) < 0.3);
  ticks_ = 0;
  path_.assign(1, point_);
}

void ReachWorld::draw() {
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
}

const frt_observation& ReachWorld::observe() {
  draw();
  state_ = {static_cast<float>(point_.x), static_cast<float>(point_.y)};
  observation_.prompt = instruction_.c_str();
  return observation_;
}

void ReachWorld::apply(std::span<const double> action) {
  const double length = std::hypot(action[0], action[1]);
  const double scale = length > kMaxStep ? kMaxStep / length : 1;
  point_.x = std::clamp(point_.x + action[0] * scale, kLow, kHigh);
  point_.y = std::clamp(point_.y + action[1] * scale, kLow, kHigh);
  ++ticks_;
  if (path_.size() < path_.capacity()) path_.push_back(point_);
  succeeded_ = succeeded_ || distance(point_, discs_[goal_]) < kReached;
}

bool ReachWorld::operator_action(std::span<double> action) {
  const Point goal = discs_[goal_];
  const double far = std::max(distance(point_, goal), 1e-9);
  const double step = std::min(kMaxStep, 0.5 * far) / far;
  action[0] = (goal.x - point_.x) * step;
  action[1] = (goal.y - point_.y) * step;
  return true;
}

}  // namespace frt::host
