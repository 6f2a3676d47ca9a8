// SPDX-License-Identifier: Apache-2.0
// frt/models/images.hpp - camera images to the size a vision encoder wants, keeping the aspect, in
// the two ways that robot policies are trained with. Both fit the image into the target, centre it
// and pad with black:
//
//   pillow     8 bit, the antialiased triangle filter of Pillow's BILINEAR, bit for bit: two passes
//              with weights of 22 bits, each rounded to 8 bits (what openpi does)
//   bilinear   f32 in 0 .. 1, two by two taps without antialiasing, as torch's interpolate with
//              align_corners=False (what LeRobot does); an odd rest is padded at the far side
//
// Images are rows of pixels of three channels (HWC). FRT_ERR_INVALID_ARGUMENT for sizes of 0.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace frt::models {

struct ImageSize {
  std::int64_t height = 0, width = 0;
  std::int64_t values() const { return height * width * 3; }
};

// Remembers weights and working memory between images of the same size, so that a steady stream of
// frames allocates nothing. One thread at a time.
class ImageResizer {
 public:
  explicit ImageResizer(ImageSize target) : target_(target) {}

  // `pixels` (size, 3) to `out` (target, 3); an image of the target's size is copied.  [driver]
  void pillow(std::span<const std::uint8_t> pixels, ImageSize size, std::uint8_t* out);
  void bilinear(std::span<const float> pixels, ImageSize size, float* out);

 private:
  // The pixels that one output position reads, and with which weights.
  struct Taps {
    std::int64_t in = 0, out = 0;
    std::vector<std::int32_t> first;    // (out)
    std::vector<std::int32_t> count;    // (out)
    std::vector<std::int32_t> weights;  // (out, widest)
    std::int64_t widest = 0;
  };
  static void make_taps(Taps& taps, std::int64_t in, std::int64_t out);
  ImageSize fitted(ImageSize size) const;

  ImageSize target_;
  Taps columns_, rows_;
  std::vector<std::uint8_t> narrowed_;  // after the first pass
  std::vector<std::uint8_t> resized_;
};

}  // namespace frt::models
