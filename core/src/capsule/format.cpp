// SPDX-License-Identifier: Apache-2.0
#include "capsule/format.hpp"

#include <frt/error.hpp>

#include <algorithm>
#include <limits>

namespace frt::core {

namespace {

// The first byte is no text, the last a line end, so that a transfer as text shows at once.
constexpr std::array<unsigned char, 8> kMagic = {0x89, 'F', 'R', 'T', 'C', 'A', 'P', '\n'};
constexpr uint32_t kVersion = 1;

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

}  // namespace frt::core
