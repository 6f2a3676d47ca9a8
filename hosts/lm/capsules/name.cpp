// SPDX-License-Identifier: Apache-2.0
#include "lm/capsules/name.hpp"

#include <fmt/format.h>
#include <frt/capsule.h>

#include <algorithm>
#include <frt/error.hpp>
#include <frt/io/utf8.hpp>
#include <vector>

namespace frt::host {
namespace {

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

}  // namespace

bool is_capsule_name(std::string_view name) noexcept {
  return !name.empty() && name.size() <= 128 && is_plain(name[0]) &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return is_plain(c) || c == '_' || c == '.' || c == '-'; });
}

void require_capsule_name(std::string_view name) {
  if (is_capsule_name(name)) return;
  throw Error(FRT_ERR_INVALID_ARGUMENT,
              io::quote(name) + " is no name of a capsule; names are " FRT_CAPSULE_NAME_RULE);
}

std::string automatic_name(const CapsuleContent& content) {
  std::vector<int32_t> shape;
  for (const Stretch& stretch : content.path) {
    shape.push_back(stretch.decode ? 1 : 0);
    shape.push_back(static_cast<int32_t>(stretch.end));
  }
  const TokenDigest steps = digest_of("", shape);
  const std::string name =
      fmt::format("auto-{}-{:016x}", content.boundary(), content.digest.low ^ steps.low);
  return content.fingerprint.empty() ? name : name + "-" + content.fingerprint;
}

bool is_automatic(const CapsuleContent& content, std::string_view name) {
  return content.kind != CapsuleKind::kNamed && content.name == name &&
         automatic_name(content) == name;
}

}  // namespace frt::host
