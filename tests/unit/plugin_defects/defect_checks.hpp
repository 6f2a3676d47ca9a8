// SPDX-License-Identifier: Apache-2.0
// defect_checks.hpp - a selftest, which passes, and a calibration, a text.
#pragma once

#include <frt/calibration.h>
#include <frt/selftest.h>
#include <frt/role/contracts.hpp>

#include <cmath>

#include "defects.hpp"

namespace defects {

inline frt_status run_selftest(frt_model, const char*, frt_selftest_report report, void* user,
                               frt_error*) {
  may_hang("run");
  frt_selftest_row row{};
  row.struct_size = sizeof(row);
  row.verdict = FRT_VERDICT_PASS;
  row.tensor = "t0.logits";
  row.gate = "equal";
  row.values = 64;
  row.relative = row.cosine_min = row.cosine_mean = NAN;
  row.argmax_agreement = 1;
  return report(user, &row);
}

inline frt_status calibration_note(frt_model, const frt_policy_shape* given, frt_stream,
                                   frt_error* error) {
  may_hang("note");
  return frt::guard(error, [&] {
    const auto shape = frt::read_table<frt_policy_shape>(given, "the host");
    if (shape.branches > 1) throw frt::Error(FRT_ERR_OUT_OF_RANGE, "no such branch");
  });
}

inline frt_status calibration_write(frt_model, double, frt_sink sink, void* user, frt_error*) {
  may_hang("write");
  return sink(user, "{}", 2);
}

inline const void* check_extension(std::string_view id) {
  if (id == FRT_EXT_SELFTEST) {
    const frt_selftest_v1 table = {sizeof(table), 0, run_selftest};
    return with_defect(table, "selftest", [](frt_selftest_v1& changed) {
      if (is("selftest_no_run")) changed.run = nullptr;
    });
  }
  if (id == FRT_EXT_CALIBRATION) {
    const frt_calibration_v1 table = {sizeof(table), 0,
                                      [](frt_model, frt_error*) -> frt_status {
                                        may_hang("begin");
                                        return FRT_OK;
                                      },
                                      calibration_note, calibration_write};
    return with_defect(table, "calibration", [](frt_calibration_v1& changed) {
      if (is("calibration_no_note")) changed.note = nullptr;
      if (is("calibration_no_write")) changed.write = nullptr;
    });
  }
  return nullptr;
}

}  // namespace defects
