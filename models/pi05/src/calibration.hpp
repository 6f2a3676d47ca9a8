// SPDX-License-Identifier: Apache-2.0
// calibration.hpp - how large the inputs of the FP8 products are: measured once over some frames
// (calibrator.hpp), kept in a file, and given to the operators as static scales.
//
// The file is JSON:
//
//   {"format": "frt.calibration/1", "model": "pi05",
//    "checkpoint": {"digest": <64 hex digits>, "files": {<name>: <sha256>, ...}},
//    "frames": 32, "margin": 1.25, "activations": "bf16",
//    "inputs": {"vision.0.qkv": {"largest": 9.31, "scale": 0.02598}, ...}}
//
// The digest is SHA-256 over "<name> <sha256>\n" of every weight file, sorted by name. An input is
// named by its tower, its layer and the product that reads it: qkv, output, hidden (the first one
// of the MLP) and down; the last prefix layer has qkv alone. scale = largest * margin / 448, for
// 448 is the largest e4m3; a value beyond saturates.
//
// The largest magnitude and not a percentile: e4m3 is a floating format, so a scale that is twice
// as large costs only values that are 2^-15 of the largest.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "config.hpp"

namespace frt::pi05 {

inline constexpr float kLargestE4m3 = 448;

// Every input, in the order in which the network reads them.
std::vector<std::string> calibrated_inputs(const Dims& dims);

// {name, SHA-256} of every weight file, sorted by name.
using FileDigests = std::vector<std::pair<std::string, std::string>>;
std::string checkpoint_digest(const FileDigests& files);

class Calibration {
 public:
  // Throws FRT_ERR_NOT_FOUND, FRT_ERR_FORMAT (what is wrong where: not a calibration, a scale that
  // is missing, not a positive number, or of no product) and FRT_ERR_MISMATCH for another
  // checkpoint, with both digests.  [setup]
  static Calibration read(const std::filesystem::path& file, const Dims& dims,
                          const FileDigests& checkpoint);
  // The same scale everywhere, for weights from nothing.
  static Calibration uniform(const Dims& dims, float largest);

  float scale(const std::string& input) const { return scales_.at(input); }
  // Of all scales, for fingerprints.
  std::string digest() const;

 private:
  std::map<std::string, float> scales_;
};

// What a calibration found, as the text of its file.
struct Measured {
  FileDigests checkpoint;
  std::uint64_t frames = 0;
  std::string activations;
  std::map<std::string, double> largest;  // by input
};
// Throws FRT_ERR_BAD_STATE without frames or with an input nobody saw, FRT_ERR_FORMAT for one that
// is not finite.
std::string calibration_text(const Dims& dims, const Measured& measured, double margin);

}  // namespace frt::pi05
