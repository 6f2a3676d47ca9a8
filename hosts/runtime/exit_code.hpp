// SPDX-License-Identifier: Apache-2.0
// exit_code.hpp - what frt-host's exit status means, and the error that carries it.
#pragma once

#include <frt/error.hpp>

#include <string>
#include <utility>

namespace frt::host {

enum class ExitCode : int {
  kOk = 0,
  kFailed = 1,    // the run itself failed: checkpoint, prompt, goldens, regression
  kUsage = 2,     // the command line
  kManifest = 3,  // the manifest
  kPlugin = 4,    // a plugin was refused or is missing
  kDevice = 5     // a device is missing or failed
};

// An error with the exit status it leads to. Everything else that reaches main() is kFailed,
// except manifest diagnostics (kManifest) and a lost device (kDevice).
class ExitError : public Error {
 public:
  ExitError(ExitCode exit_code, frt_status status, const std::string& message)
      : Error(status, message), exit_code_(exit_code) {}
  ExitCode exit_code() const noexcept { return exit_code_; }

 private:
  ExitCode exit_code_;
};

// Runs `body`; an frt::Error that has no exit status yet gets `exit_code`.
template <class Body>
decltype(auto) stage(ExitCode exit_code, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const ExitError&) {
    throw;
  } catch (const Error& error) {
    throw ExitError(exit_code, error.status(), error.what());
  }
}

}  // namespace frt::host
