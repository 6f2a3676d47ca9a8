// SPDX-License-Identifier: Apache-2.0
// forged_file.hpp - a capsule file put together by a stranger: any manifest, metadata, payload and
// header, with digests that are right (core/src/capsule/FILE_FORMAT.md).
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <frt/core/digest.hpp>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace frt::test {

struct ForgedFile {
  nlohmann::json manifest;
  std::string metadata, payload;
  std::map<std::size_t, uint64_t> header;  // offset -> what is there instead of the truth

  explicit ForgedFile(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    const auto number = [&](std::size_t at) {
      uint64_t value = 0;
      std::memcpy(&value, &bytes.at(at), sizeof(value));
      return value;
    };
    manifest = nlohmann::json::parse(bytes.substr(kHeader, number(24)));
    metadata = bytes.substr(kHeader + number(24), number(32));
    payload = bytes.substr(number(40), number(48));
  }

  // What the manifest says of the metadata and of its own fingerprint becomes true, if it says it.
  void sign() {
    if (!manifest.is_object()) return;
    if (manifest.contains("metadata") && manifest["metadata"].is_object()) {
      manifest["metadata"]["bytes"] = metadata.size();
      manifest["metadata"]["sha256"] = core::sha256_hex(metadata);
    }
    core::Fingerprint fields;
    try {
      for (const auto& field : manifest.at("fingerprint")) {
        fields.add(field.at("name").get<std::string>(), field.at("value").get<std::string>());
      }
    } catch (const std::exception&) {
      return;
    }
    manifest["fingerprint_sha256"] = fields.hex();
  }

  void write(const std::filesystem::path& path) const {
    const std::string text = manifest.dump();
    const uint64_t offset = (kHeader + text.size() + metadata.size() + 4095) / 4096 * 4096;
    const uint64_t chunks = (payload.size() + kChunk - 1) / kChunk;
    std::string bytes(
        "\x89"
        "FRTCAP\n"
        "\x01\x00\x00\x00\x00\x00\x00\x00",
        16);
    const auto put = [&](uint64_t value) {
      bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
    };
    put(offset + payload.size() + 32 * chunks + 40);
    put(text.size());
    put(metadata.size());
    put(offset);
    put(payload.size());
    put(kChunk);
    for (const auto& [at, value] : header) std::memcpy(&bytes.at(at), &value, sizeof(value));
    bytes += text + metadata;
    const auto digest_of = [](const std::string& part, const std::string& more) {
      core::Sha256 sha;
      sha.update(part.data(), part.size());
      sha.update(more.data(), more.size());
      const auto digest = sha.finish_bytes();
      return std::string(digest.begin(), digest.end());
    };
    std::string digests;
    for (uint64_t at = 0; at < payload.size(); at += kChunk) {
      digests += digest_of(payload.substr(at, kChunk), "");
    }
    const std::string root = digest_of(bytes, digests);
    bytes.resize(offset, '\0');
    bytes += payload + digests + root + "FRTCAPS\n";
    std::ofstream(path, std::ios::binary) << bytes;
    std::filesystem::permissions(
        path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  }

 private:
  static constexpr uint64_t kHeader = 64, kChunk = uint64_t{4} << 20;
};

}  // namespace frt::test
