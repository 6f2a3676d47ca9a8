// SPDX-License-Identifier: Apache-2.0
#include "capsule/manifest.hpp"

#include <frt/io/json_sax.hpp>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "capsule/format.hpp"
#include "capsule/payload.hpp"

namespace frt::core {

namespace {

constexpr const char* kFormatName = "frt-capsule/1";

// A manifest is 3 levels deep.
constexpr io::JsonLimits kManifestLimits{.bytes = kManifestLimit, .depth = 8};

Error damaged(const std::string& what) {
  return Error(FRT_ERR_FORMAT, what);
}

std::string json_string(std::string_view text) {
  return io::Json(text).dump();
}

// An object, written as its members come: in ascending order of their keys.
class ObjectText {
 public:
  ObjectText& add(const char* key, uint64_t value) { return add_json(key, std::to_string(value)); }
  ObjectText& add(const char* key, std::string_view text) {
    return add_json(key, json_string(text));
  }
  ObjectText& add_json(const char* key, std::string_view json) {
    text_ += text_.empty() ? '{' : ',';
    text_ += json_string(key);
    text_ += ':';
    text_ += json;
    return *this;
  }
  std::string end() const { return text_ + '}'; }

 private:
  std::string text_;
};

class ArrayText {
 public:
  void add_json(std::string_view json) {
    text_ += text_.empty() ? '[' : ',';
    text_ += json;
  }
  std::string end() const { return text_.empty() ? "[]" : text_ + ']'; }

 private:
  std::string text_;
};

std::string fields_text(const Fingerprint& fingerprint) {
  ArrayText fields;
  for (const Fingerprint::Field& field : fingerprint.fields()) {
    fields.add_json(ObjectText().add("name", field.name).add("value", field.value).end());
  }
  return fields.end();
}

// `full`: pages that the payload holds in full.
std::string regions_text(const frt_state_s& state, uint64_t boundary, uint64_t full,
                         uint64_t page_rows) {
  ArrayText regions;
  uint64_t at = state.fixed_bytes + full * state.page_stride;
  for (const frt_state_s::Region& region : state.regions) {
    const char* dtype = dtype_name(region.dtype);
    ObjectText entry;
    if (region.kind == FRT_REGION_FIXED) {
      entry.add("dtype", dtype).add("kind", "fixed").add("name", region.name);
      entry.add("offset", region.offset).add("row_bytes", region.row_bytes);
    } else {
      const uint64_t rows = valid_rows(region, boundary);
      entry.add("dtype", dtype).add("kind", "rows").add("name", region.name);
      entry.add("page_offset", full ? region.offset : 0).add("rest_offset", at);
      entry.add("row_bytes", region.row_bytes).add("rows", rows);
      at += (rows - std::min(rows, full * page_rows)) * region.row_bytes;
    }
    regions.add_json(entry.end());
  }
  return regions.end();
}

// Writes what it reads again, in canonical form, and keeps the facts.
class ManifestReader : public io::SaxHandler {
 public:
  ManifestReader() : SaxHandler("its manifest cannot be read", kManifestLimits) {}

  bool null() { return value("null"); }
  bool boolean(bool v) { return value(v ? "true" : "false"); }
  bool number_integer(std::int64_t) { throw not_canonical(); }
  bool number_float(double, const std::string&) { throw not_canonical(); }
  bool number_unsigned(std::uint64_t v) {
    if (at({"boundary"})) boundary_ = v;
    if (at({"payload", "bytes"})) payload_bytes_ = v;
    if (at({"metadata", "bytes"})) metadata_bytes_ = v;
    return value(std::to_string(v));
  }
  bool string(std::string& v) {
    value(json_string(v));
    if (at({"format"})) format_ = std::move(v);
    if (at({"metadata", "sha256"})) metadata_digest_ = std::move(v);
    if (at({"fingerprint_sha256"})) fingerprint_digest_ = std::move(v);
    if (at({"fingerprint", "", "name"})) field_name_ = std::move(v);
    if (at({"fingerprint", "", "value"})) field_value_ = std::move(v);
    return true;
  }
  bool binary(io::Json::binary_t&) { return false; }  // JSON text has none
  bool start_object(std::size_t) { return open(false); }
  bool start_array(std::size_t) {
    if (at({"fingerprint"})) fingerprint_ = true;
    return open(true);
  }
  bool key(std::string& v) {
    Level& level = levels_.back();
    if (!level.empty && v <= level.key) throw not_canonical();
    if (!level.empty) canonical_ += ',';
    level.empty = false;
    canonical_ += json_string(v) + ':';
    level.key = std::move(v);
    return true;
  }
  bool end_object() {
    close('}');
    if (at({"fingerprint", ""})) {
      facts_.fingerprint.add(needed(field_name_), needed(field_value_));
      field_name_.reset();
      field_value_.reset();
    }
    return true;
  }
  bool end_array() { return close(']'); }

  ManifestFacts facts(std::string_view text) && {
    if (canonical_ != text) throw not_canonical();
    if (needed(format_) != kFormatName) throw damaged("its manifest is of another format");
    if (!fingerprint_) throw incomplete();
    if (needed(fingerprint_digest_) != facts_.fingerprint.hex()) {
      throw damaged("the fingerprint of its manifest is not that of its fields");
    }
    facts_.boundary = needed(boundary_);
    facts_.payload_bytes = needed(payload_bytes_);
    facts_.metadata_bytes = needed(metadata_bytes_);
    facts_.metadata_digest = needed(metadata_digest_);
    return std::move(facts_);
  }

 private:
  struct Level {
    bool array;
    bool empty = true;
    std::string key = {};  // of the current member
  };

  static Error not_canonical() { return damaged("its manifest is not in canonical form"); }

  static Error incomplete() {
    return damaged("its manifest lacks a member, or has one of another type");
  }

  template <class T>
  static T needed(std::optional<T>& fact) {
    if (!fact) throw incomplete();
    return std::move(*fact);
  }

  // Whether the current value is at `path`; "" stands for an element of an array.
  bool at(std::initializer_list<std::string_view> path) const {
    return std::equal(path.begin(), path.end(), levels_.begin(), levels_.end(),
                      [](std::string_view key, const Level& level) {
                        return level.array == key.empty() && level.key == key;
                      });
  }
  void begin_value() {
    if (levels_.empty() || !levels_.back().array) return;
    if (!levels_.back().empty) canonical_ += ',';
    levels_.back().empty = false;
  }
  bool value(std::string_view json) {
    if (at({"fingerprint", ""})) throw incomplete();  // its elements are objects
    count();
    begin_value();
    canonical_ += json;
    return true;
  }
  bool open(bool array) {
    if (array && at({"fingerprint", ""})) throw incomplete();
    enter();
    begin_value();
    canonical_ += array ? '[' : '{';
    levels_.push_back({array});
    return true;
  }
  bool close(char bracket) {
    leave();
    canonical_ += bracket;
    levels_.pop_back();
    return true;
  }

  ManifestFacts facts_;
  bool fingerprint_ = false;  // there, and an array
  std::optional<uint64_t> boundary_, payload_bytes_, metadata_bytes_;
  std::optional<std::string> format_, metadata_digest_, fingerprint_digest_;
  std::optional<std::string> field_name_, field_value_;
  std::string canonical_;
  std::vector<Level> levels_;
};

}  // namespace

std::string write_manifest(const frt_state_s& state, uint64_t boundary,
                           const Fingerprint& fingerprint, std::string_view metadata) {
  const uint64_t full = full_pages(state, boundary);
  const uint64_t page_rows = state.pages ? state.pages->page_rows() : 0;
  // Names that are no UTF-8 could not be read again.
  try {
    ObjectText manifest, metadata_text, payload;
    metadata_text.add("bytes", metadata.size()).add("sha256", sha256_hex(metadata));
    payload.add("bytes", payload_bytes(state, boundary)).add("fixed_bytes", state.fixed_bytes);
    payload.add("page_bytes", full ? state.page_stride : 0);
    payload.add("page_rows", full ? page_rows : 0).add("pages", full);
    manifest.add("boundary", boundary).add_json("fingerprint", fields_text(fingerprint));
    manifest.add("fingerprint_sha256", fingerprint.hex()).add("format", kFormatName);
    manifest.add_json("metadata", metadata_text.end());
    manifest.add_json("payload", payload.end());
    manifest.add_json("regions", regions_text(state, boundary, full, page_rows));
    return manifest.end();
  } catch (const io::Json::exception&) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "state '" + state.name +
                                              "': a region's name or a field of the fingerprint is "
                                              "no UTF-8 text");
  }
}

ManifestFacts read_manifest(std::string_view text) {
  try {
    ManifestReader reader;
    io::run_sax(text, reader);
    return std::move(reader).facts(text);
  } catch (const Error& error) {
    throw damaged(error.what());
  }
}

}  // namespace frt::core
