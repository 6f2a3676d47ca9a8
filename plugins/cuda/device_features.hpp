// SPDX-License-Identifier: Apache-2.0
// device_features.hpp - what device code can use: of the instructions that the plugin was compiled
// for, those that the device has. Computed once when a device is opened. Kernel variants state what
// they need of it (ops/variants.hpp); host code that differs by a feature asks for it here and
// never for an architecture. Device code asks the macros of ops/common/arch.cuh.
#pragma once

#include <cstdint>
#include <string>

namespace frt::cuda {

// Bits of a set.
using FeatureSet = uint32_t;
namespace feature {
inline constexpr FeatureSet kPdl = 1;          // programmatic dependent launch
inline constexpr FeatureSet kClusters = 2;     // thread block clusters
inline constexpr FeatureSet kBulkCopies = 4;   // mbarriers, bulk copies, tensor maps (TMA)
inline constexpr FeatureSet kWgmma = 8;        // warpgroup products of sm_90a
inline constexpr FeatureSet kTcgen05 = 16;     // tensor memory and products of sm_100a to sm_110a
inline constexpr FeatureSet kFp4Mma = 32;      // products of FP4 by FP4 by threads (mma.sync)
inline constexpr FeatureSet kCoResident = 64;  // blocks of one launch may wait for each other
inline constexpr FeatureSet kLibrary = 128;    // cuBLASLt may be used, where it is found
inline constexpr FeatureSet kFp8Activations = 256;  // the device's option activations = "fp8"
inline constexpr FeatureSet kFp4Activations = 512;  // ... = "fp4"
inline constexpr FeatureSet kAll = 1023;
}  // namespace feature

// The device's option `activations`: to what products of many rows with quantised weights round
// what they multiply them by. kFp8: with FP8 weights; kFp4: with NVFP4 weights.
enum class ActivationRounding : uint8_t { kExact, kFp8, kFp4 };

// What the hardware and the compiled code say.
struct FeatureFacts {
  int code = 0;              // the plugin's architecture: 90 for sm_90a
  bool code_exact = false;   // it has machine code of an "a" architecture
  int capability = 0;        // of the device: 90 for 9.0
  bool cooperative = false;  // cudaDevAttrCooperativeLaunch
  ActivationRounding activations = ActivationRounding::kExact;
};

// Whether cuBLASLt is there only loading it tells (Device::offers).  [any]
FeatureSet features_of(const FeatureFacts& facts);

// The bit that has this name ("wgmma"); 0: none has.  [any]
FeatureSet feature_named(const std::string& name);

// What a kernel variant needs.
struct Needs {
  FeatureSet features = 0;
  int shared_bytes = 0;  // of shared memory for a block
};

// "wgmma, clusters, 196608 bytes of shared memory"; empty: nothing.  [any]
std::string needs_text(const Needs& needs);

}  // namespace frt::cuda
