// SPDX-License-Identifier: Apache-2.0
// Reading trusts nothing: metadata comes from files. Every member is checked for its type and its
// range, the steps must cover the tokens, the digest must be theirs, and what the manifest of the
// file says, too, must be the same.
#include "lm/capsules/content.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <frt/error.hpp>
#include <frt/io/json.hpp>
#include <frt/io/json_text.hpp>
#include <limits>
#include <utility>

#include "lm/capsules/name.hpp"
#include "lm/sampling.hpp"

namespace frt::host {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "frt.lm.capsule/1";
constexpr std::array kKinds = {"named", "chunk", "user-turn", "turn"};
constexpr std::size_t kMostText = 1024;  // bytes of owner and model
constexpr std::size_t kMostDepth = 160;  // of JSON: a conversation may be as deep as a file of one

std::string encode_tokens(const std::vector<int32_t>& tokens) {
  const std::size_t bytes = tokens.size() * sizeof(int32_t);
  std::string text((bytes + 2) / 3 * 4 + 1, '\0');  // with the terminator that OpenSSL writes
  const int length = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                     reinterpret_cast<const unsigned char*>(tokens.data()),
                                     static_cast<int>(bytes));
  text.resize(static_cast<std::size_t>(length));
  return text;
}

[[noreturn]] void refuse(const std::string& member, const std::string& expected) {
  throw Error(FRT_ERR_FORMAT, "the capsule's metadata: member `" + member + "` is not " + expected +
                                  "; the capsule was not written by this kind of host");
}

std::vector<int32_t> decode_tokens(const std::string& text, uint64_t count) {
  const std::size_t bytes = count * sizeof(int32_t);
  if (text.size() != (bytes + 2) / 3 * 4) refuse("tokens", "base64 of `boundary` tokens");
  std::vector<int32_t> tokens((text.size() / 4 * 3 + sizeof(int32_t) - 1) / sizeof(int32_t));
  const int length = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(tokens.data()),
                                     reinterpret_cast<const unsigned char*>(text.data()),
                                     static_cast<int>(text.size()));
  if (length < 0 || static_cast<std::size_t>(length) < bytes) refuse("tokens", "base64");
  tokens.resize(count);
  return tokens;
}

const Json& member(const Json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end()) refuse(name, "there");
  return *found;
}

std::string text_of(const Json& json, const char* name) {
  const Json& value = member(json, name);
  if (!value.is_string()) refuse(name, "text");
  return value.get<std::string>();
}

std::string short_text_of(const Json& json, const char* name) {
  std::string text = text_of(json, name);
  if (text.size() > kMostText) refuse(name, "text of at most 1024 bytes");
  return text;
}

// Of a capsule, or empty.
std::string name_of(const Json& json, const char* name) {
  std::string text = text_of(json, name);
  if (!text.empty() && !is_capsule_name(text)) refuse(name, "a name of a capsule");
  return text;
}

uint64_t number_of(const Json& json, const char* name) {
  const Json& value = member(json, name);
  if (!value.is_number_unsigned()) refuse(name, "a number");
  return value.get<uint64_t>();
}

PendingToken pending_from(const Json& json) {
  PendingToken pending;
  if (!json.is_object() || !json.value("token", Json()).is_number_integer() ||
      !json.value("shown", Json()).is_boolean()) {
    refuse("pending", "{token, log_probability, shown}");
  }
  const auto token = json["token"].get<int64_t>();
  if (token < -1 || token > INT32_MAX) refuse("pending", "a token, or -1");
  pending.token = static_cast<int32_t>(token);
  pending.shown = json["shown"].get<bool>();
  // A logarithm that is no number is written as null.
  const Json probability = json.value("log_probability", Json());
  if (probability.is_number()) {
    const auto value = probability.get<double>();
    if (!(std::abs(value) <= double{std::numeric_limits<float>::max()})) {
      refuse("pending", "of a finite log_probability");
    }
    pending.log_probability = static_cast<float>(value);
  } else if (!probability.is_null()) {
    refuse("pending", "{token, log_probability, shown}");
  }
  return pending;
}

[[noreturn]] void contradict(const std::string& what, const std::string& said,
                             const std::string& found) {
  throw Error(FRT_ERR_FORMAT, "the capsule's metadata say " + what + " " + said +
                                  ", its manifest says " + found +
                                  ": they are of different capsules; remove it");
}

}  // namespace

const char* capsule_kind_name(CapsuleKind kind) noexcept {
  return kKinds[static_cast<std::size_t>(kind)];
}

std::string content_to_text(const CapsuleContent& content) {
  if (content.boundary() > kMostTokens) {
    throw Error(FRT_ERR_OUT_OF_RANGE, "a capsule of " + std::to_string(content.boundary()) +
                                          " tokens; at most " + std::to_string(kMostTokens));
  }
  if (content.owner.size() > kMostText || content.model.size() > kMostText) {
    throw Error(FRT_ERR_OUT_OF_RANGE,
                "a capsule's owner and model have names of at most 1024 bytes; use shorter ones");
  }
  const Json json = {{"format", kFormat},
                     {"name", content.name},
                     {"kind", capsule_kind_name(content.kind)},
                     {"parent", content.parent},
                     {"owner", content.owner},
                     {"model", content.model},
                     {"created", content.created},
                     {"chunk", content.chunk},
                     {"boundary", content.boundary()},
                     {"digest", to_text(content.digest)},
                     {"tokens", encode_tokens(content.tokens)},
                     {"steps", path_to_json(content.path)},
                     {"pending",
                      {{"token", content.pending.token},
                       {"log_probability", content.pending.log_probability},
                       {"shown", content.pending.shown}}},
                     {"sampling", sampling_to_json(content.sampling)},
                     {"extra", content.extra}};
  return io::json_text(json, {.bad = io::BadUtf8::kReplace});
}

CapsuleContent content_from_text(std::string_view text) {
  const Json json = io::parse_json(text, "the capsule's metadata", {.depth = kMostDepth});
  if (!json.is_object()) refuse("format", "there, this is no JSON object");
  if (text_of(json, "format") != kFormat) refuse("format", std::string("\"") + kFormat + "\"");
  CapsuleContent content;
  content.name = name_of(json, "name");
  const std::string kind = text_of(json, "kind");
  std::size_t index = 0;
  while (index < kKinds.size() && kind != kKinds[index]) ++index;
  if (index == kKinds.size()) refuse("kind", "a known kind");
  content.kind = static_cast<CapsuleKind>(index);
  content.parent = name_of(json, "parent");
  content.owner = short_text_of(json, "owner");
  content.model = short_text_of(json, "model");
  content.created = number_of(json, "created");
  content.chunk = number_of(json, "chunk");
  if (content.chunk == 0) refuse("chunk", "above 0");
  const uint64_t boundary = number_of(json, "boundary");
  if (boundary > kMostTokens) refuse("boundary", "a number of tokens");
  content.tokens = decode_tokens(text_of(json, "tokens"), boundary);
  const auto below_zero = [](int32_t token) { return token < 0; };
  if (std::any_of(content.tokens.begin(), content.tokens.end(), below_zero)) {
    refuse("tokens", "a list of tokens: one is below 0");
  }
  content.digest = digest_from_text(text_of(json, "digest"));
  if (digest_of(content.owner, content.tokens) != content.digest) {
    refuse("digest", "that of the tokens");
  }
  content.path = path_from_json(member(json, "steps"), boundary);
  content.pending = pending_from(member(json, "pending"));
  content.sampling = sampling_from_json(member(json, "sampling"));
  check_sampling(content.sampling, FRT_ERR_FORMAT);
  content.extra = member(json, "extra");
  if (!content.extra.is_object()) refuse("extra", "an object");
  return content;
}

void check_content(const CapsuleContent& content, const ContentModel& model) {
  if (model.chunk != 0 && content.chunk != model.chunk) {
    throw Error(FRT_ERR_MISMATCH,
                "the capsule was taken with prefill_chunk = " + std::to_string(content.chunk) +
                    ", the model has " + std::to_string(model.chunk) +
                    "; set the model's option prefill_chunk to " + std::to_string(content.chunk));
  }
  if (model.vocabulary == 0) return;
  int32_t largest = content.pending.token;
  for (const int32_t token : content.tokens) largest = std::max(largest, token);
  if (largest >= 0 && static_cast<uint64_t>(largest) >= model.vocabulary) {
    throw Error(FRT_ERR_FORMAT, "the capsule's metadata say token " + std::to_string(largest) +
                                    ", but the model has " + std::to_string(model.vocabulary) +
                                    " tokens: it is of another model; remove it");
  }
}

void check_content(const CapsuleContent& content, uint64_t rows) {
  if (content.boundary() == rows) return;
  contradict("boundary", std::to_string(content.boundary()), std::to_string(rows));
}

std::string fingerprint_digest(std::span<const frt_fingerprint_field> fields) {
  std::string bytes;
  for (const frt_fingerprint_field& field : fields) {
    for (const std::string_view text : {field.name, field.value}) {
      bytes += fmt::format("{}:", text.size());
      bytes += text;
    }
  }
  return fmt::format("{:016x}", digest_of(bytes, {}).low);
}

std::string note_builds(CapsuleContent& content, const std::string& name,
                        std::string_view other_build) {
  // This build went on from what the path says was another's: no other field differs (a line for
  // each, frt/capsule.h).
  const bool went_on = other_build.starts_with(FRT_FINGERPRINT_CONTINUES ":") &&
                       other_build.find('\n') == std::string_view::npos &&
                       has_other_build(content.path);
  if (!other_build.empty() && !went_on) {
    set_other_build(content.path);
    std::string fields(other_build);
    for (std::size_t at = 0; (at = fields.find('\n', at)) != std::string::npos;) {
      fields.replace(at, 1, "; ");
    }
    return "capsule '" + name + "' was stored by another build (" + fields +
           "): it continues from the stored state; tokens may differ from those of the build that "
           "stored it";
  }
  if (!has_other_build(content.path)) return {};
  return "capsule '" + name +
         "' has a part that another build computed: tokens may differ from those of a run of one "
         "build";
}

void take_manifest(CapsuleContent& content, const std::string& manifest) {
  const Json json = io::parse_json(manifest, "the capsule's manifest");
  if (!json.is_object()) refuse("boundary", "beside a manifest in JSON");
  check_content(content, number_of(json, "boundary"));
  const std::string chunk = std::to_string(content.chunk);
  const Json& said = member(json, "fingerprint");
  std::vector<std::pair<std::string, std::string>> texts;
  std::vector<frt_fingerprint_field> fields;
  texts.reserve(said.size());
  for (const Json& field : said) {
    if (!field.is_object()) refuse("fingerprint", "a list of {name, value} in the manifest");
    const auto& [name, value] = texts.emplace_back(text_of(field, "name"), text_of(field, "value"));
    fields.push_back({name.c_str(), value.c_str()});
    if (name == "model.chunk" && value != chunk) contradict("chunk", chunk, value);
  }
  content.fingerprint = fingerprint_digest(fields);
  mark_mixed(content);
}

void mark_mixed(CapsuleContent& content) {
  const bool marked = content.fingerprint.ends_with(kMixedBuilds);
  if (has_other_build(content.path) && !marked) content.fingerprint += kMixedBuilds;
}

}  // namespace frt::host
