// SPDX-License-Identifier: Apache-2.0
#include "capsule/format.hpp"

#include <frt/io/json.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>

#include "capsule/payload.hpp"
#include "exec/objects.hpp"

namespace frt::core {

namespace {

using Json = nlohmann::json;  // keys of objects in order

// The first byte is no text, the last a line end, so that a transfer as text shows at once.
constexpr std::array<unsigned char, 8> kMagic = {0x89, 'F', 'R', 'T', 'C', 'A', 'P', '\n'};
constexpr uint32_t kVersion = 1;
constexpr const char* kFormatName = "frt-capsule/1";

void put(unsigned char* to, uint64_t value, std::size_t bytes) noexcept {
  for (std::size_t i = 0; i < bytes; ++i) to[i] = static_cast<unsigned char>(value >> (8 * i));
}

uint64_t get(const unsigned char* from, std::size_t bytes) noexcept {
  uint64_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i) value |= uint64_t{from[i]} << (8 * i);
  return value;
}

Error damaged(const std::string& what) {
  return Error(FRT_ERR_FORMAT, what);
}

// A manifest is 3 levels deep.
constexpr io::JsonLimits kManifestLimits{.bytes = kManifestLimit, .depth = 8};

uint64_t align(uint64_t offset) noexcept {
  return (offset + kPayloadAlignment - 1) / kPayloadAlignment * kPayloadAlignment;
}

}  // namespace

// ---- header --------------------------------------------------------------------------------
//
//    0  magic 89 46 52 54 43 41 50 0a       32  u64 bytes of the metadata
//    8  u32 version, 1                      40  u64 offset of the payload
//   12  u32 flags, 0                        48  u64 bytes of the payload
//   16  u64 bytes of the file               56  u32 bytes of a chunk, 4194304
//   24  u64 bytes of the manifest           60  u32 0

FileShape make_shape(uint64_t manifest_bytes, uint64_t metadata_bytes, uint64_t payload_bytes) {
  if (manifest_bytes > kManifestLimit || metadata_bytes > kMetadataLimit) {
    throw Error(FRT_ERR_OUT_OF_RANGE,
                "the manifest has " + std::to_string(manifest_bytes) + " bytes and the metadata " +
                    std::to_string(metadata_bytes) + "; at most " + std::to_string(kManifestLimit) +
                    " and " + std::to_string(kMetadataLimit) + " fit into a capsule file");
  }
  // Far below the end of 64 bits, so that no sum of a shape overflows.
  if (payload_bytes > std::numeric_limits<uint64_t>::max() / 4) {
    throw Error(FRT_ERR_OUT_OF_RANGE, "a payload of " + std::to_string(payload_bytes) + " bytes");
  }
  FileShape shape;
  shape.manifest_bytes = manifest_bytes;
  shape.metadata_bytes = metadata_bytes;
  shape.payload_offset = align(kHeaderBytes + manifest_bytes + metadata_bytes);
  shape.payload_bytes = payload_bytes;
  return shape;
}

std::array<unsigned char, kHeaderBytes> write_header(const FileShape& shape) noexcept {
  std::array<unsigned char, kHeaderBytes> header{};
  std::copy(kMagic.begin(), kMagic.end(), header.begin());
  put(&header[8], kVersion, 4);
  put(&header[16], shape.file_bytes(), 8);
  put(&header[24], shape.manifest_bytes, 8);
  put(&header[32], shape.metadata_bytes, 8);
  put(&header[40], shape.payload_offset, 8);
  put(&header[48], shape.payload_bytes, 8);
  put(&header[56], kChunkBytes, 4);
  return header;
}

FileShape read_header(const std::array<unsigned char, kHeaderBytes>& header, uint64_t file_bytes) {
  if (!std::equal(kMagic.begin(), kMagic.end(), header.begin())) {
    throw damaged("it does not start as a capsule file does");
  }
  const uint64_t version = get(&header[8], 4), flags = get(&header[12], 4);
  if (version != kVersion || flags != 0) {
    throw Error(FRT_ERR_UNSUPPORTED, "it is of version " + std::to_string(version) + ", flags " +
                                         std::to_string(flags) + "; this build reads version 1");
  }
  if (get(&header[16], 8) != file_bytes) {
    throw damaged("it has " + std::to_string(file_bytes) + " bytes and says that it has " +
                  std::to_string(get(&header[16], 8)) + ": cut off, or more was added");
  }
  FileShape shape;
  try {
    shape = make_shape(get(&header[24], 8), get(&header[32], 8), get(&header[48], 8));
  } catch (const Error& error) {
    throw damaged(error.what());
  }
  // Everything else follows from three lengths, so the header must be the one they give.
  if (write_header(shape) != header) {
    throw damaged("the lengths in its header contradict each other");
  }
  return shape;
}

RawDigest root_digest(std::string_view head, std::string_view digests) {
  Sha256 sha;
  sha.update(head.data(), head.size());
  sha.update(digests.data(), digests.size());
  return sha.finish_bytes();
}

// ---- manifest ------------------------------------------------------------------------------

std::string write_manifest(const frt_state_s& state, uint64_t boundary,
                           const Fingerprint& fingerprint, std::string_view metadata) {
  const uint64_t whole = whole_blocks(state, boundary);
  const uint64_t block_rows = state.rows ? state.rows->block_rows() : 0;
  Json regions = Json::array();
  uint64_t at = state.fixed_bytes + whole * (state.rows ? state.block_stride : 0);
  for (const frt_state_s::Region& region : state.regions) {
    Json entry;
    entry["name"] = region.name;
    entry["dtype"] = dtype_name(region.dtype);
    entry["row_bytes"] = region.row_bytes;
    if (region.kind == FRT_REGION_FIXED) {
      entry["kind"] = "fixed";
      entry["offset"] = region.offset;
    } else {
      const uint64_t rows = valid_rows(region, boundary);
      entry["kind"] = "rows";
      entry["rows"] = rows;
      entry["block_offset"] = whole ? region.offset : 0;
      entry["rest_offset"] = at;
      at += (rows - std::min(rows, whole * block_rows)) * region.row_bytes;
    }
    regions.push_back(std::move(entry));
  }
  Json fields = Json::array();
  for (const Fingerprint::Field& field : fingerprint.fields()) {
    fields.push_back({{"name", field.name}, {"value", field.value}});
  }
  Json manifest;
  manifest["format"] = kFormatName;
  manifest["boundary"] = boundary;
  manifest["fingerprint"] = std::move(fields);
  manifest["fingerprint_sha256"] = fingerprint.hex();
  manifest["metadata"] = {{"bytes", metadata.size()}, {"sha256", sha256_hex(metadata)}};
  manifest["payload"] = {{"bytes", payload_bytes(state, boundary)},
                         {"fixed_bytes", state.fixed_bytes},
                         {"block_bytes", whole ? state.block_stride : 0},
                         {"block_rows", whole ? block_rows : 0},
                         {"blocks", whole}};
  manifest["regions"] = std::move(regions);
  // Names that are no UTF-8 could not be read again.
  try {
    return manifest.dump();
  } catch (const Json::exception&) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "state '" + state.name +
                                              "': a region's name or a field of the fingerprint is "
                                              "no UTF-8 text");
  }
}

ManifestFacts read_manifest(std::string_view text) {
  ManifestFacts facts;
  try {
    const Json manifest = io::parse_json(text, "its manifest cannot be read", kManifestLimits);
    if (manifest.dump() != text) throw damaged("its manifest is not in canonical form");
    if (manifest.at("format").get_ref<const std::string&>() != kFormatName) {
      throw damaged("its manifest is of another format");
    }
    const auto number = [](const Json& value) {
      if (!value.is_number_unsigned()) throw damaged("a number of its manifest is none");
      return value.get<uint64_t>();
    };
    facts.boundary = number(manifest.at("boundary"));
    facts.payload_bytes = number(manifest.at("payload").at("bytes"));
    facts.metadata_bytes = number(manifest.at("metadata").at("bytes"));
    facts.metadata_digest = manifest.at("metadata").at("sha256").get<std::string>();
    for (const Json& field : manifest.at("fingerprint")) {
      facts.fingerprint.add(field.at("name").get<std::string>(),
                            field.at("value").get<std::string>());
    }
    if (manifest.at("fingerprint_sha256").get_ref<const std::string&>() !=
        facts.fingerprint.hex()) {
      throw damaged("the fingerprint of its manifest is not that of its fields");
    }
  } catch (const Json::exception& error) {
    throw damaged(std::string("its manifest cannot be read (") + error.what() + ")");
  } catch (const Error& error) {
    throw damaged(error.what());
  }
  return facts;
}

}  // namespace frt::core
