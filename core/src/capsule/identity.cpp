// SPDX-License-Identifier: Apache-2.0
#include "capsule/identity.hpp"

#include <algorithm>
#include <frt/core/capsules.hpp>
#include <frt/io/utf8.hpp>
#include <frt/version.hpp>
#include <utility>

#include "capsule/capsule.hpp"

namespace frt::core {

namespace {

std::string region_lines(const frt_state_s& state) {
  std::string text;
  for (const frt_state_s::Region& region : state.regions) {
    text += region.name + (region.kind == FRT_REGION_ROWS ? " rows " : " fixed ") +
            dtype_name(region.dtype) + " " + std::to_string(region.row_bytes) + " " +
            std::to_string(region.row_lag) + "\n";
  }
  return text;
}

Error unbound(const frt_state_s& state) {
  return Error(FRT_ERR_BAD_STATE, "state '" + state.name +
                                      "' has no fingerprint, so files of it could not be told "
                                      "from those of another model; bind its fields first");
}

}  // namespace

void check_builds(const Fingerprint& fingerprint, std::size_t most, frt_status status) {
  constexpr std::size_t kMostText = 256;
  const Fingerprint builds = fingerprint.only(Fingerprint::Part::kBuild);
  const auto one_line = [](const std::string& text) {
    return text.size() <= kMostText && io::printable(text) == text;
  };
  const auto fits = [&](const Fingerprint::Field& field) {
    return one_line(field.name) && one_line(field.value);
  };
  if (builds.fields().size() <= most &&
      std::all_of(builds.fields().begin(), builds.fields().end(), fits)) {
    return;
  }
  throw Error(status, "its fingerprint has more than " + std::to_string(most) +
                          " fields of builds, or one of more than 256 bytes or with characters "
                          "that do not print");
}

void CapsuleIdentity::bind(Fields fields) {
  if (fields_) throw Error(FRT_ERR_EXISTS, "a fingerprint is bound to this state already");
  fields_ = std::move(fields);
}

const Fingerprint& CapsuleIdentity::resolve(const frt_state_s& state) {
  if (ready_.load(std::memory_order_acquire)) return value_;
  if (!fields_) throw unbound(state);
  Fingerprint value;
  value.add("abi", oldest_abi());  // what works together shares its capsules
  value.add("arena.page_rows", std::to_string(state.pages ? state.pages->page_rows() : 0));
  value.add("arena.regions", sha256_hex(region_lines(state)));
  for (Fingerprint::Field& field : fields_()) {
    if (field.name == FRT_FINGERPRINT_CONTINUES) {
      throw Error(FRT_ERR_INVALID_ARGUMENT,
                  "state '" + state.name +
                      "': the field " FRT_FINGERPRINT_CONTINUES
                      " of its fingerprint is core's own; give yours another name");
    }
    value.add(std::move(field.name), std::move(field.value));
  }
  check_builds(value, kMostOwnBuilds, FRT_ERR_INVALID_ARGUMENT);
  value_ = std::move(value);
  for (const Fingerprint::Field& field : value_.fields()) {
    views_.push_back({field.name.c_str(), field.value.c_str()});
  }
  ready_.store(true, std::memory_order_release);
  return value_;
}

const Fingerprint& CapsuleIdentity::resolved(const frt_state_s& state) const {
  if (ready_.load(std::memory_order_acquire)) return value_;
  if (!fields_) throw unbound(state);
  throw Error(FRT_ERR_BAD_STATE,
              "the fingerprint of state '" + state.name +
                  "' is not known yet; call fingerprint() on the thread that made the model");
}

void bind_capsules(frt_state state, std::function<std::vector<Fingerprint::Field>()> fields) {
  state->identity.bind(std::move(fields));
}

namespace capsules {

frt_status bind(frt_state state, const frt_fingerprint_field* fields, uint64_t count,
                frt_error* error) noexcept {
  if (!state || (!fields && count)) {
    return set_error(error, FRT_ERR_INVALID_ARGUMENT, "capsules bind: a null argument");
  }
  return guard(error, [&] {
    Fingerprint given;  // refuses a name that is given twice
    for (const frt_fingerprint_field& field : std::span(fields, count)) {
      if (!field.name || !field.value) {
        throw Error(FRT_ERR_INVALID_ARGUMENT, "capsules bind: a field without name or value");
      }
      given.add(field.name, field.value);
    }
    state->identity.bind([given] { return given.fields(); });
  });
}

frt_status fingerprint(frt_state state, const frt_fingerprint_field** fields, uint64_t* count,
                       frt_error* error) noexcept {
  if (!state || !fields || !count) {
    return set_error(error, FRT_ERR_INVALID_ARGUMENT, "capsules fingerprint: a null argument");
  }
  return guard(error, [&] {
    state->identity.resolve(*state);
    *fields = state->identity.views().data();
    *count = state->identity.views().size();
  });
}

}  // namespace capsules
}  // namespace frt::core
