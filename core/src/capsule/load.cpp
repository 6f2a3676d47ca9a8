// SPDX-License-Identifier: Apache-2.0
// Loading, verifying, describing. One way in for all three:
//
//   1  the header against the size of the file
//   2  manifest, metadata and the digests of the chunks against the root digest; the zeros between
//   3  the manifest for itself: canonical, and of the lengths that the header says
//   4  load only: the identity in its fingerprint against the arena's; then the whole manifest
//      against the one that the arena would write for that boundary, had the file's builds made it.
//      Memory is taken for what the arena says.
//   5  the chunks against their digests, several at a time while they are read
//
// After step 3 description and metadata are known to be what was saved; after step 5 all is. What
// is read is verified where it lies in memory, so a file that changes meanwhile does no harm.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "capsule/capsule.hpp"
#include "capsule/folder.hpp"
#include "capsule/format.hpp"
#include "capsule/host_payload.hpp"
#include "capsule/manifest.hpp"
#include "capsule/parallel.hpp"
#include "capsule/payload.hpp"

namespace frt::core {

// An open file whose head and digests are verified.
struct CapsuleReading {
  std::string text;  // of the path
  io::Descriptor file;
  FileShape shape;
  std::string head;     // header, manifest, metadata
  std::string digests;  // (chunks, 32)
  ManifestFacts facts;

  explicit CapsuleReading(const CapsulePath& path)
      : text(path.text()), file(open_capsule_file(path)) {}

  std::string_view manifest() const {
    return std::string_view(head).substr(kHeaderBytes, shape.manifest_bytes);
  }
  std::string_view metadata() const {
    return std::string_view(head).substr(kHeaderBytes + shape.manifest_bytes);
  }
};

namespace {

void read_at(const CapsuleReading& reading, void* to, uint64_t bytes, uint64_t offset) {
  auto* at = static_cast<std::byte*>(to);
  while (bytes > 0) {
    const ssize_t got = ::pread(reading.file.get(), at, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(FRT_ERR_IO, std::string("it cannot be read: ") + std::strerror(errno));
    if (got == 0) throw Error(FRT_ERR_FORMAT, "it became shorter while it was read");
    at += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<uint64_t>(got);
  }
}

std::string read_part(const CapsuleReading& reading, uint64_t bytes, uint64_t offset) {
  std::string part(bytes, '\0');
  read_at(reading, part.data(), bytes, offset);
  return part;
}

// Steps 1 to 3.
void read_head(CapsuleReading& reading) {
  struct stat info {};
  if (::fstat(reading.file.get(), &info) != 0) {
    throw Error(FRT_ERR_IO, std::string("it cannot be examined: ") + std::strerror(errno));
  }
  const auto file_bytes = static_cast<uint64_t>(info.st_size);
  if (file_bytes < kHeaderBytes) {
    throw Error(FRT_ERR_FORMAT,
                "it has " + std::to_string(file_bytes) + " bytes, less than a header");
  }
  std::array<unsigned char, kHeaderBytes> header;
  read_at(reading, header.data(), header.size(), 0);
  reading.shape = read_header(header, file_bytes);
  const FileShape& shape = reading.shape;

  reading.head = read_part(reading, shape.payload_offset, 0);
  const uint64_t head_bytes = kHeaderBytes + shape.manifest_bytes + shape.metadata_bytes;
  const bool zeros = std::all_of(reading.head.begin() + static_cast<std::ptrdiff_t>(head_bytes),
                                 reading.head.end(), [](char c) { return c == '\0'; });
  reading.head.resize(head_bytes);
  const std::string tail =
      read_part(reading, shape.file_bytes() - shape.digests_offset(), shape.digests_offset());
  reading.digests = tail.substr(0, shape.chunks() * kDigestBytes);
  const RawDigest root = root_digest(reading.head, reading.digests);
  const std::string_view end = std::string_view(tail).substr(reading.digests.size());
  if (!zeros || std::memcmp(end.data(), root.data(), kDigestBytes) != 0 ||
      end.substr(kDigestBytes) != kEndMark) {
    throw Error(FRT_ERR_FORMAT,
                "its root digest is not that of its header, manifest, metadata and digests");
  }

  reading.facts = read_manifest(reading.manifest());
  if (reading.facts.payload_bytes != shape.payload_bytes ||
      reading.facts.metadata_bytes != shape.metadata_bytes ||
      reading.facts.metadata_digest != sha256_hex(reading.metadata())) {
    throw Error(FRT_ERR_FORMAT, "its manifest contradicts its header or its metadata");
  }
}

// Step 4. Returns the build that stored it, if it was another one.
BuildOrigin check_belongs(const CapsuleReading& reading, const frt_state_s& state) {
  using Part = Fingerprint::Part;
  const Fingerprint& here = state.identity.resolved(state);
  const Fingerprint& stored = reading.facts.fingerprint;
  const std::string difference =
      Fingerprint::difference(here.only(Part::kIdentity), stored.only(Part::kIdentity));
  if (!difference.empty()) {
    throw Error(FRT_ERR_MISMATCH,
                "it is of another model, weights, plugin or configuration: " + difference);
  }
  check_builds(stored, kMostBuilds, FRT_ERR_FORMAT);
  state.check(check_boundary(state, reading.facts.boundary, "load"));
  const std::string own = write_manifest(state, reading.facts.boundary, stored, reading.metadata());
  if (own != reading.manifest()) {
    throw Error(FRT_ERR_FORMAT, "its manifest describes another arrangement of bytes");
  }
  return origin_of_file(
      here, stored, Fingerprint::difference(here.only(Part::kBuild), stored.only(Part::kBuild)));
}

void check_chunk(const CapsuleReading& reading, uint64_t chunk, Sha256& sha) {
  const RawDigest digest = sha.finish_bytes();
  if (std::memcmp(digest.data(), &reading.digests[chunk * kDigestBytes], kDigestBytes) == 0) return;
  throw Error(FRT_ERR_FORMAT,
              "chunk " + std::to_string(chunk) + " (bytes from " +
                  std::to_string(reading.shape.payload_offset + chunk * kChunkBytes) +
                  " on) has another digest than it should");
}

// Runs a step and says which file an error is about.
template <class Body>
void about(const CapsuleReading& reading, Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    std::string text = "the capsule " + reading.text + ": " + error.what();
    if (error.status() == FRT_ERR_FORMAT) text += "; it is damaged: remove it";
    throw Error(error.status(), text);
  }
}

// Step 5, into memory that is given back after each chunk.
void verify_payload(const CapsuleReading& reading) {
  constexpr uint64_t kPart = uint64_t{256} << 10;
  const FileShape& shape = reading.shape;
  for_each_parallel(shape.chunks(), [&](uint64_t chunk) {
    const uint64_t end = std::min((chunk + 1) * kChunkBytes, shape.payload_bytes);
    std::string part(kPart, '\0');
    Sha256 sha;
    for (uint64_t at = chunk * kChunkBytes; at < end; at += kPart) {
      const uint64_t bytes = std::min(kPart, end - at);
      read_at(reading, part.data(), bytes, shape.payload_offset + at);
      sha.update(part.data(), bytes);
    }
    check_chunk(reading, chunk, sha);
  });
}

// Step 5, to where the capsule's payload is.
void read_payload(const CapsuleReading& reading, const frt_capsule_s& capsule) {
  const FileShape& shape = reading.shape;
  const HostPayload payload(capsule);
  for_each_parallel(shape.chunks(), [&](uint64_t chunk) {
    const uint64_t offset = chunk * kChunkBytes;
    Sha256 sha;
    payload.for_each_part(offset, std::min(kChunkBytes, capsule.bytes - offset),
                          [&](std::byte* to, uint64_t bytes, uint64_t position) {
                            read_at(reading, to, bytes, shape.payload_offset + position);
                            sha.update(to, bytes);
                          });
    check_chunk(reading, chunk, sha);
  });
}

void give(frt_sink sink, void* user, std::string_view bytes, const char* whose) {
  if (sink) check(sink(user, bytes.data(), bytes.size()), whose);
}

}  // namespace

namespace capsules {

frt_status load_begin(frt_state state, const char* folder, const char* name, frt_space space,
                      frt_sink metadata, void* user, frt_capsule* capsule,
                      frt_error* error) noexcept {
  if (!state || !capsule) {
    return set_error(error, FRT_ERR_INVALID_ARGUMENT, "capsule load: a null argument");
  }
  return guard(error, [&] {
    const ContextCall call(state->context, nullptr, "capsule load");
    call.check();
    const frt_space where = capsule_space(*state, space, "capsule load");
    if (where == FRT_SPACE_DEVICE) {
      throw Error(FRT_ERR_UNSUPPORTED, "a capsule is loaded into a host space; copy it from there");
    }
    auto reading = std::make_unique<CapsuleReading>(CapsulePath(folder, name));
    BuildOrigin origin;
    about(*reading, [&] {
      read_head(*reading);
      origin = check_belongs(*reading, *state);
    });
    CapsuleOwner made = make_capsule(*state, reading->facts.boundary, where, nullptr);
    state->loaded_origins.keep(origin);
    made->origin = std::move(origin);
    if (holds_pages(*state, where)) take_pages(*made, nullptr);
    give(metadata, user, reading->metadata(), "the receiver of a capsule's metadata");
    made->filled.store(Filled::kReading, std::memory_order_release);
    made->reading = std::move(reading);
    *capsule = made.release();
  });
}

frt_status load_finish(frt_capsule capsule, frt_error* error) noexcept {
  if (!capsule) {
    return set_error(error, FRT_ERR_INVALID_ARGUMENT, "capsule load: a null capsule");
  }
  return guard(error, [&] {
    if (capsule->filled.load(std::memory_order_acquire) != Filled::kReading) {
      throw Error(FRT_ERR_BAD_STATE, "load_finish: the capsule is not being loaded");
    }
    try {
      const auto reading = std::move(capsule->reading);
      about(*reading, [&] { read_payload(*reading, *capsule); });
    } catch (...) {
      capsule->filled.store(Filled::kBroken, std::memory_order_release);
      throw;
    }
    capsule->filled.store(Filled::kComplete, std::memory_order_release);
  });
}

frt_status verify(const char* folder, const char* name, frt_error* error) noexcept {
  return guard(error, [&] {
    CapsuleReading reading(CapsulePath(folder, name));
    about(reading, [&] {
      read_head(reading);
      verify_payload(reading);
    });
  });
}

frt_status describe(const char* folder, const char* name, frt_sink manifest, void* manifest_user,
                    frt_sink metadata, void* metadata_user, frt_error* error) noexcept {
  return guard(error, [&] {
    CapsuleReading reading(CapsulePath(folder, name));
    about(reading, [&] { read_head(reading); });
    give(manifest, manifest_user, reading.manifest(), "the receiver of a capsule's manifest");
    give(metadata, metadata_user, reading.metadata(), "the receiver of a capsule's metadata");
  });
}

}  // namespace capsules
}  // namespace frt::core

frt_capsule_s::frt_capsule_s() = default;
frt_capsule_s::~frt_capsule_s() = default;
