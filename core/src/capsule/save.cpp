// SPDX-License-Identifier: Apache-2.0
// Saving. The order is what makes it safe:
//
//   1  a temporary file in the same folder, of a name that nobody else has, locked (folder.cpp)
//   2  chunks are hashed and written, several at a time; then what stands before and behind them
//   3  fdatasync: the content is on the disk
//   4  rename: the name shows the old file or the new one, never a part
//   5  fsync of the folder: the name is on the disk; only now the save is acknowledged
//
// Whoever dies in between leaves a temporary file without a lock, for sweep().
#include "capsule/save.hpp"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <frt/flags.hpp>
#include <limits>

#include "capsule/format.hpp"
#include "capsule/host_payload.hpp"
#include "capsule/manifest.hpp"
#include "capsule/parallel.hpp"

namespace frt::core {

namespace {

Error write_error(int code, const CapsulePath& path) {
  std::string text = "cannot save the capsule " + path.text() + ": " + std::strerror(code);
  switch (code) {
    case EEXIST:
      return Error(FRT_ERR_EXISTS, "the capsule " + path.text() +
                                       " is there already; choose another name, or ask for it to "
                                       "be replaced");
    case ENOSPC:
    case EDQUOT:
      text += "; remove capsules, or choose a folder with more room";
      break;
    case EFBIG:
      text += "; files may not be that large here (ulimit -f)";
      break;
    case EACCES:
    case EPERM:
    case EROFS:
      text += "; choose a folder that this user may write to";
      break;
    default:
      break;
  }
  return Error(FRT_ERR_IO, text);
}

// A temporary file that goes away unless it is published.
class TemporaryFile {
 public:
  TemporaryFile(FileLayer& files, const CapsulePath& path)
      : files_(files), path_(path), folder_(open_folder_for_writing(path.folder())) {
    static std::atomic<uint64_t> number{0};
    // EEXIST: another process of that id, in another container, or one that died.
    // EAGAIN: a sweep was faster.
    for (int attempt = 0; attempt < 1000; ++attempt) {
      name_ = std::string(kTemporaryPrefix) + std::to_string(::getpid()) + "-" +
              std::to_string(number.fetch_add(1));
      file_ = io::Descriptor(files.create(folder_.get(), name_.c_str()));
      if (file_.get() >= 0) return;
      if (errno != EEXIST && errno != EAGAIN) break;
    }
    throw write_error(errno == EEXIST ? EAGAIN : errno, path);
  }
  ~TemporaryFile() {
    if (!name_.empty()) files_.remove(folder_.get(), name_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(const void* data, uint64_t bytes, uint64_t offset) {  // [any]
    const auto* from = static_cast<const std::byte*>(data);
    while (bytes > 0) {
      const ssize_t put = files_.write_at(file_.get(), from, bytes, static_cast<off_t>(offset));
      if (put <= 0) throw write_error(put == 0 ? ENOSPC : errno, path_);
      from += put;
      offset += static_cast<uint64_t>(put);
      bytes -= static_cast<uint64_t>(put);
    }
  }
  void publish(bool replace) {
    if (files_.sync_data(file_.get()) != 0) throw write_error(errno, path_);
    if (files_.publish(folder_.get(), name_.c_str(), path_.file().c_str(), replace) != 0) {
      throw write_error(errno, path_);
    }
    name_.clear();
    if (files_.sync_folder(folder_.get()) == 0) return;
    const int error = errno;
    // The file may be lost with the power. What was replaced is gone; else there is nothing again.
    if (!replace) files_.remove(folder_.get(), path_.file().c_str());
    throw write_error(error, path_);
  }

 private:
  FileLayer& files_;
  const CapsulePath& path_;
  io::Descriptor folder_;
  std::string name_;
  io::Descriptor file_;
};

}  // namespace

void save_capsule(FileLayer& files, const frt_capsule_s& capsule, const CapsulePath& path,
                  std::string_view metadata, bool replace) {
  const frt_state_s& state = *capsule.state;
  const HostPayload payload(capsule);
  require_complete(capsule);
  // Who saves a capsule need not be who computed it.
  const Fingerprint& computed =
      capsule.origin ? capsule.origin->fingerprint : state.identity.resolved(state);
  const std::string manifest = write_manifest(state, capsule.boundary, computed, metadata);
  const FileShape shape = make_shape(manifest.size(), metadata.size(), capsule.bytes);

  TemporaryFile file(files, path);
  std::string digests(shape.chunks() * kDigestBytes, '\0');
  for_each_parallel(shape.chunks(), [&](uint64_t chunk) {
    const uint64_t offset = chunk * kChunkBytes;
    Sha256 sha;
    payload.for_each_part(offset, std::min(kChunkBytes, shape.payload_bytes - offset),
                          [&](const std::byte* data, uint64_t bytes, uint64_t position) {
                            sha.update(data, bytes);
                            file.write(data, bytes, shape.payload_offset + position);
                          });
    const RawDigest digest = sha.finish_bytes();
    std::memcpy(&digests[chunk * kDigestBytes], digest.data(), kDigestBytes);
  });

  const auto header = write_header(shape);
  std::string head(header.begin(), header.end());
  head += manifest;
  head += metadata;
  const RawDigest root = root_digest(head, digests);
  head.resize(shape.payload_offset, '\0');
  file.write(head.data(), head.size(), 0);
  std::string tail = digests;
  tail.append(root.begin(), root.end());
  tail += kEndMark;
  file.write(tail.data(), tail.size(), shape.digests_offset());
  file.publish(replace);
}

namespace capsules {

frt_status save(frt_capsule capsule, const char* folder, const char* name, const void* metadata,
                uint64_t metadata_bytes, uint32_t flags, frt_error* error) noexcept {
  if (!capsule || (!metadata && metadata_bytes)) {
    return set_error(error, FRT_ERR_INVALID_ARGUMENT, "capsule save: a null argument");
  }
  return guard(error, [&] {
    require_flags(flags, FRT_CAPSULE_REPLACE, "capsule save");
    save_capsule(system_files(), *capsule, CapsulePath(folder, name),
                 {static_cast<const char*>(metadata), metadata_bytes},
                 (flags & FRT_CAPSULE_REPLACE) != 0);
  });
}

}  // namespace capsules
}  // namespace frt::core
