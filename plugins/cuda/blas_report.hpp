// SPDX-License-Identifier: Apache-2.0
// blas_report.hpp - what people are told about cuBLASLt: which library products of many rows find,
// and which algorithms were timed on a device and are taken from then on. Asks no device.
#pragma once

#include <string>
#include <vector>

namespace frt::cuda {

// frt_device_status_v1::report.
struct Finding {
  std::string subject, fact, advice;
};

// For a device of that name ("NVIDIA H200"). Loads the library.  [setup]
std::vector<Finding> report_blas(const std::string& device);

}  // namespace frt::cuda
