// SPDX-License-Identifier: Apache-2.0
// The byte format is in digest.hpp.
#include <frt/capsule.h>
#include <frt/core/digest.hpp>

#include <algorithm>
#include <iterator>

namespace frt::core {

namespace {

void add_number(Sha256& sha, uint64_t value) {
  unsigned char bytes[8];
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<unsigned char>(value >> (8 * i));
  sha.update(bytes, sizeof(bytes));
}

void add_text(Sha256& sha, std::string_view text) {
  add_number(sha, text.size());
  sha.update(text.data(), text.size());
}

const std::string* find(const std::vector<Fingerprint::Field>& fields, std::string_view name) {
  const auto found = std::find_if(fields.begin(), fields.end(),
                                  [&](const auto& field) { return field.name == name; });
  return found == fields.end() ? nullptr : &found->value;
}

// Digests are long and differ early; the start is enough to compare by eye.
std::string shown(const std::string& value) {
  return value.size() > 24 ? value.substr(0, 20) + "..." : value;
}

}  // namespace

void Fingerprint::add(std::string name, std::string value) {
  if (find(fields_, name)) {
    throw Error(FRT_ERR_EXISTS, "fingerprint field '" + name + "' is given twice");
  }
  fields_.push_back({std::move(name), std::move(value)});
}

std::string Fingerprint::hex() const {
  Sha256 sha;
  add_text(sha, "frt-fingerprint/1");
  add_number(sha, fields_.size());
  for (const Field& field : fields_) {
    add_text(sha, field.name);
    add_text(sha, field.value);
  }
  return sha.finish();
}

Fingerprint::Part Fingerprint::part_of(std::string_view name) noexcept {
  return name.starts_with(FRT_FINGERPRINT_BUILD) ? Part::kBuild : Part::kIdentity;
}

Fingerprint Fingerprint::only(Part part) const {
  Fingerprint chosen;
  std::copy_if(fields_.begin(), fields_.end(), std::back_inserter(chosen.fields_),
               [part](const Field& field) { return part_of(field.name) == part; });
  return chosen;
}

std::string Fingerprint::difference(const Fingerprint& here, const Fingerprint& stored) {
  std::string text;
  const auto line = [&](const std::string& content) {
    if (!text.empty()) text += "\n";
    text += content;
  };
  for (const Field& field : here.fields_) {
    const std::string* other = find(stored.fields_, field.name);
    if (!other) {
      line(field.name + ": here " + shown(field.value) + ", not stored");
    } else if (*other != field.value) {
      line(field.name + ": here " + shown(field.value) + ", stored " + shown(*other));
    }
  }
  for (const Field& field : stored.fields_) {
    if (!find(here.fields_, field.name)) {
      line(field.name + ": stored " + shown(field.value) + ", not here");
    }
  }
  if (text.empty() && here.fields_ != stored.fields_) return "the order of the fields";
  return text;
}

}  // namespace frt::core
