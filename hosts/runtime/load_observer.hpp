// SPDX-License-Identifier: Apache-2.0
// load_observer.hpp - what a program hears while models load, and how it stops that. A program that
// wants neither passes no observer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace frt::host {

// A model that is ready.
struct ReadyModel {
  std::string name;          // in the manifest
  std::string device;        // in the manifest
  std::string backend;       // the plugin's id
  std::string product;       // "NVIDIA H100", as the backend names the device
  std::string architecture;  // of the model
  uint64_t weight_bytes = 0, state_bytes = 0;
  double seconds = 0;  // from the start of its load
};

class LoadObserver {
 public:
  virtual ~LoadObserver() = default;

  // `done` of `total` (0: unknown) units (FRT_PROGRESS_*) of a phase: "plugins", "weights",
  // "capture". Phases follow each other.  [any]
  virtual void progress(std::string_view phase, uint32_t unit, uint64_t done, uint64_t total);
  // The current phase is over, although not all of it may be done.  [setup]
  virtual void phase_ended();
  // True: the load ends with FRT_ERR_CANCELLED at its next report of progress.  [any]
  virtual bool cancelled() const;
  // [setup]
  virtual void ready(const ReadyModel& model);
};

inline void LoadObserver::progress(std::string_view, uint32_t, uint64_t, uint64_t) {}
inline void LoadObserver::phase_ended() {}
inline bool LoadObserver::cancelled() const {
  return false;
}
inline void LoadObserver::ready(const ReadyModel&) {}

}  // namespace frt::host
