// SPDX-License-Identifier: Apache-2.0
// format.hpp - the parts of a capsule file (FILE_FORMAT.md is the published page):
//
//   header 64 | manifest | metadata | zeros to a multiple of 4096 | payload | digests | root | end
//
// What a reader may use of a file's own numbers: lengths that were checked against each other and
// against the size of the file, without overflow. How a payload is taken apart comes from the
// reader's own arena: the manifest it would write itself must be the one that is there.
#pragma once

#include <frt/core/digest.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace frt::core {

inline constexpr uint64_t kHeaderBytes = 64;
inline constexpr uint64_t kPayloadAlignment = 4096;
inline constexpr uint64_t kChunkBytes = uint64_t{4} << 20;
inline constexpr uint64_t kManifestLimit = uint64_t{16} << 20;
inline constexpr uint64_t kMetadataLimit = uint64_t{64} << 20;
inline constexpr uint64_t kDigestBytes = 32;
inline constexpr std::string_view kEndMark = "FRTCAPS\n";

using RawDigest = std::array<unsigned char, kDigestBytes>;

// Where everything is in a file. `read` and `make` give only such that hold together.
struct FileShape {
  uint64_t manifest_bytes = 0, metadata_bytes = 0, payload_offset = 0, payload_bytes = 0;

  uint64_t chunks() const noexcept { return (payload_bytes + kChunkBytes - 1) / kChunkBytes; }
  uint64_t digests_offset() const noexcept { return payload_offset + payload_bytes; }
  uint64_t root_offset() const noexcept { return digests_offset() + chunks() * kDigestBytes; }
  uint64_t file_bytes() const noexcept { return root_offset() + kDigestBytes + kEndMark.size(); }
};

// Throws FRT_ERR_OUT_OF_RANGE beyond a limit.
FileShape make_shape(uint64_t manifest_bytes, uint64_t metadata_bytes, uint64_t payload_bytes);
std::array<unsigned char, kHeaderBytes> write_header(const FileShape& shape) noexcept;
// Throws FRT_ERR_FORMAT if `header` is no header of a file of `file_bytes`; FRT_ERR_UNSUPPORTED for
// a version or flags that this build does not know.
FileShape read_header(const std::array<unsigned char, kHeaderBytes>& header, uint64_t file_bytes);

// SHA-256 of header, manifest, metadata and the digests of the chunks, one after the other.
RawDigest root_digest(std::string_view head, std::string_view digests);

}  // namespace frt::core
