// SPDX-License-Identifier: Apache-2.0
#include "capsule/payload.hpp"

namespace frt::core {

uint64_t valid_rows(const frt_state_s::Region& region, uint64_t boundary) noexcept {
  if (region.row_lag >= 0) {
    const auto lag = static_cast<uint64_t>(region.row_lag);
    return boundary > lag ? boundary - lag : 0;
  }
  const uint64_t lead = uint64_t{0} - static_cast<uint64_t>(region.row_lag);
  return boundary > UINT64_MAX - lead ? UINT64_MAX : boundary + lead;
}

frt_status check_boundary(const frt_state_s& state, uint64_t boundary, const char* call) noexcept {
  for (const frt_state_s::Region& region : state.regions) {
    if (region.kind != FRT_REGION_ROWS) continue;
    if (std::max(boundary, valid_rows(region, boundary)) <= region.max_rows) continue;
    return call_failed(state.context, FRT_ERR_OUT_OF_RANGE,
                       "%s: state '%.100s': boundary %llu, but region '%.100s' has %llu rows", call,
                       state.name.c_str(), Rows{boundary}, region.name.c_str(),
                       Rows{region.max_rows});
  }
  return FRT_OK;
}

uint64_t payload_bytes(const frt_state_s& state, uint64_t boundary) noexcept {
  uint64_t end = 0;
  for_each_run(state, boundary, [&](const Run& run) { end = run.at + run.bytes; });
  return end;
}

}  // namespace frt::core
