// SPDX-License-Identifier: Apache-2.0
// plugin_reports.hpp - what a plugin reports one call at a time: the comparisons of a model's
// self-test, facts about a device. Each is checked when it comes; the first that cannot be read
// stops the report and is thrown.
#pragma once

#include <frt/device_status.h>
#include <frt/selftest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace frt::host {

// One comparison of a self-test.
struct SelftestRow {
  std::string goldens, tensor, gate;
  frt_selftest_row figures{};  // without its texts
};

// Runs the self-test on the file or folder `goldens`, an absolute path. Throws what the model
// reports, and FRT_ERR_ABI or FRT_ERR_FORMAT for a row that cannot be read; `sender` names the
// model. `progressed` is called at each row.  [setup]
std::vector<SelftestRow> run_selftest(const frt_selftest_v1& table, frt_model model,
                                      const std::string& goldens, const std::string& sender,
                                      const std::function<void()>& progressed = {});

// What a backend says about a device and the libraries that it is used with.
struct SurveyedFact {
  std::string subject, fact, advice;  // advice: empty where nothing is to be done
};

// None if the backend has nothing to say. Throws as run_selftest().  [setup]
std::vector<SurveyedFact> device_facts(const frt_device_status_v1& table, frt_plugin plugin,
                                       uint32_t ordinal, const std::string& sender);

}  // namespace frt::host
