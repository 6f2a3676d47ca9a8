// SPDX-License-Identifier: Apache-2.0
// Reading trusts nothing: metadata comes from files. Every member is checked for its type, the
// steps must cover the tokens, and the digest must be theirs.
#include "lm/capsule_content.hpp"

#include <openssl/evp.h>

#include <array>
#include <cstring>
#include <frt/error.hpp>

#include "lm/sampling.hpp"

namespace frt::host {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "frt.lm.capsule/1";
constexpr std::array kKinds = {"named", "chunk", "user-turn", "turn"};
constexpr uint64_t kMostTokens = uint64_t{1} << 28;  // a gigabyte of them

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
  pending.token = json["token"].get<int32_t>();
  pending.shown = json["shown"].get<bool>();
  const Json probability = json.value("log_probability", Json());
  if (probability.is_number()) pending.log_probability = probability.get<float>();
  return pending;
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
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

CapsuleContent content_from_text(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) refuse("format", "there, this is no JSON object");
  if (text_of(json, "format") != kFormat) refuse("format", std::string("\"") + kFormat + "\"");
  CapsuleContent content;
  content.name = text_of(json, "name");
  const std::string kind = text_of(json, "kind");
  std::size_t index = 0;
  while (index < kKinds.size() && kind != kKinds[index]) ++index;
  if (index == kKinds.size()) refuse("kind", "a known kind");
  content.kind = static_cast<CapsuleKind>(index);
  content.parent = text_of(json, "parent");
  content.owner = text_of(json, "owner");
  content.model = text_of(json, "model");
  content.created = number_of(json, "created");
  content.chunk = number_of(json, "chunk");
  if (content.chunk == 0) refuse("chunk", "above 0");
  const uint64_t boundary = number_of(json, "boundary");
  if (boundary > kMostTokens) refuse("boundary", "a number of tokens");
  content.tokens = decode_tokens(text_of(json, "tokens"), boundary);
  content.digest = digest_from_text(text_of(json, "digest"));
  if (digest_of(content.owner, content.tokens) != content.digest) {
    refuse("digest", "that of the tokens");
  }
  content.path = path_from_json(member(json, "steps"), boundary);
  content.pending = pending_from(member(json, "pending"));
  content.sampling = sampling_from_json(member(json, "sampling"));
  content.extra = member(json, "extra");
  return content;
}

}  // namespace frt::host
