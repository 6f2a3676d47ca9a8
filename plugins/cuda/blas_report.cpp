// SPDX-License-Identifier: Apache-2.0
#include "blas_report.hpp"

#include <cstdio>
#include <frt/error.hpp>

#include "blas_choices.hpp"
#include "blas_library.hpp"

namespace frt::cuda {

std::vector<Finding> report_blas(const std::string& device) {
  const std::string subject = "cuBLASLt";
  std::vector<Finding> found;
  try {
    const BlasLibrary library;
    const std::size_t version = library.version();
    const BlasChoices choices(device, version, [&](const std::string& text) {
      found.push_back({subject, text, "nothing to do: the next model that is loaded mends it"});
    });
    char text[64];
    std::snprintf(text, sizeof(text), "%zu.%zu.%zu, ", version / 10000, version / 100 % 100,
                  version % 100);
    const std::size_t count = choices.all().size();
    std::string fact = text + library.path() + "; ";
    if (count == 0) {
      fact += "no shape was timed on " + device + " yet";
    } else {
      fact += std::to_string(count) + (count == 1 ? " shape" : " shapes") + " timed on " + device +
              ", kept in " + choices.path();
    }
    found.push_back({subject, fact, ""});
    for (const auto& [key, choice] : choices.all()) {
      // The number that the library knows an algorithm by comes first in its description.
      std::snprintf(text, sizeof(text), "algorithm %u, %.1f us",
                    static_cast<unsigned>(choice.algorithm[0] & 0xFFFFFFFFu), choice.microseconds);
      found.push_back({subject + " " + key, text, ""});
    }
  } catch (const Error& error) {
    found.push_back({subject, error.what(), "without it products of many rows are slower"});
  }
  return found;
}

}  // namespace frt::cuda
