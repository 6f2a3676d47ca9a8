// SPDX-License-Identifier: Apache-2.0
// A file is read, never mapped: a mapping of a file that shrinks is a signal on access, and one of
// a file that is overwritten shows the new bytes without a word
// (models/common/notes/2026-11-23-checkpoints-are-read.md).
//
// Which version of the file was opened is its stat(): inode, size, modification and change time.
// Every read compares it afterwards, so bytes of another version are never handed out. The times
// have the resolution of the kernel's clock tick: open() waits until the tick of the last change is
// over, so that a later change shows.
//
// Names and shapes of all tensors lie in one string and one vector, which the views point into:
// 100,000 tensors cost two allocations, not 200,000.
#include <sys/stat.h>
#include <unistd.h>

#include <frt/error.hpp>
#include <frt/io/utf8.hpp>
#include <frt/models/digest_memo.hpp>
#include <frt/models/safetensors.hpp>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <mutex>
#include <thread>

#include "safetensors_header.hpp"
#include "text.hpp"

namespace frt::models {
namespace {

std::int64_t nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

[[noreturn]] void refuse(const std::string& path, const char* what) {
  throw Error(FRT_ERR_IO, path + ": cannot be " + what + ": " + std::strerror(errno));
}

struct stat examine(int descriptor, const std::string& path) {
  struct stat status = {};
  if (::fstat(descriptor, &status) != 0) refuse(path, "examined");
  return status;
}

// The status once the clock tick of the last change is over. Another machine's clock, on a network
// file system, is not waited for longer than a few ticks.
struct stat settled_status(int descriptor, const std::string& path) {
  struct stat status = examine(descriptor, path);
  for (int ticks = 0; ticks < 10; ++ticks) {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME_COARSE, &now);  // the clock that stamps files
    if (nanoseconds(now) > nanoseconds(status.st_ctim)) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    status = examine(descriptor, path);
  }
  return status;
}

}  // namespace

struct SafetensorsFile::Version {
  dev_t device;
  ino_t inode;
  nlink_t links;
  off_t size;
  std::int64_t modified, changed;  // ns

  explicit Version(const struct stat& status)
      : device(status.st_dev),
        inode(status.st_ino),
        links(status.st_nlink),
        size(status.st_size),
        modified(nanoseconds(status.st_mtim)),
        changed(nanoseconds(status.st_ctim)) {}

  bool same_file(const Version& other) const {
    return device == other.device && inode == other.inode;
  }
  // A file that is renamed over or removed gets a new change time, too; its content stays.
  bool same_content(const Version& other) const {
    return same_file(other) && size == other.size && modified == other.modified &&
           (changed == other.changed || links != other.links);
  }
};

struct SafetensorsFile::DigestCache {
  std::mutex mutex;
  std::string hex;  // empty until asked for
};

std::uint64_t TensorView::elements() const {
  std::uint64_t count = 1;
  for (const std::uint64_t extent : shape) count *= extent;
  return count;
}

void TensorView::read(std::uint64_t at, std::span<std::byte> target) const {
  if (at > bytes || target.size() > bytes - at) {
    throw Error(FRT_ERR_OUT_OF_RANGE,
                std::string(file) + ": a read outside tensor " + io::quote(name));
  }
  if (!target.empty()) source->read(offset + at, target);
}

std::vector<std::byte> TensorView::read() const {
  std::vector<std::byte> data(bytes);
  read(0, data);
  return data;
}

std::shared_ptr<const SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  const std::shared_ptr<SafetensorsFile> file(new SafetensorsFile);
  file->path_ = path.string();
  file->digest_ = std::make_unique<DigestCache>();
  file->descriptor_ = io::open_file(path, "checkpoint");
  const struct stat status = settled_status(file->descriptor_.get(), file->path_);
  file->version_ = std::make_unique<const Version>(status);
  file->bytes_ = static_cast<std::uint64_t>(status.st_size);

  std::vector<std::byte> head(std::min<std::uint64_t>(file->bytes_, 8));
  file->read(0, head);
  const std::size_t known = head.size();
  head.resize(safetensors_head_bytes(head, file->bytes_));
  file->read(known, std::span(head).subspan(known));
  const SafetensorsHeader header = parse_safetensors_header(head, file->bytes_, file->path_);
  std::size_t name_bytes = 0, extents = 0;
  for (const HeaderEntry& entry : header.entries) {
    name_bytes += entry.name.size();
    extents += entry.shape.size();
  }
  file->names_.reserve(name_bytes);
  file->shapes_.reserve(extents);
  file->tensors_.reserve(header.entries.size());
  for (const HeaderEntry& entry : header.entries) {
    const char* name = file->names_.data() + file->names_.size();
    const std::uint64_t* shape = file->shapes_.data() + file->shapes_.size();
    file->names_ += entry.name;
    file->shapes_.insert(file->shapes_.end(), entry.shape.begin(), entry.shape.end());
    file->tensors_.push_back({.name = {name, entry.name.size()},
                              .file = file->path_,
                              .dtype = entry.dtype,
                              .shape = {shape, entry.shape.size()},
                              .bytes = entry.end - entry.begin,
                              .source = file.get(),
                              .offset = header.data_start + entry.begin});
  }
  file->metadata_ = header.metadata;
  return file;
}

SafetensorsFile::~SafetensorsFile() = default;

void SafetensorsFile::read(std::uint64_t offset, std::span<std::byte> target) const {
  for (std::uint64_t done = 0; done < target.size();) {
    const ssize_t got = ::pread(descriptor_.get(), target.data() + done, target.size() - done,
                                static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse(path_, "read");
    if (got == 0) {
      throw Error(FRT_ERR_IO, path_ + ": ends at byte " + std::to_string(offset + done) +
                                  ", expected " + std::to_string(bytes_) +
                                  " bytes; it was truncated while it was in use");
    }
    done += static_cast<std::uint64_t>(got);
  }
  require_same_content();
}

void SafetensorsFile::require_same_content() const {
  if (version_->same_content(Version(examine(descriptor_.get(), path_)))) return;
  throw Error(FRT_ERR_IO, path_ +
                              ": was changed while it was in use; start again when it is "
                              "complete, and replace checkpoints by rename");
}

void SafetensorsFile::require_unchanged() const {
  require_same_content();
  struct stat status = {};
  if (::stat(path_.c_str(), &status) == 0 && version_->same_file(Version(status))) return;
  throw Error(FRT_ERR_IO, path_ + ": was replaced or removed while it was loaded; start again");
}

const std::string& SafetensorsFile::sha256() const {
  const std::lock_guard lock(digest_->mutex);
  if (digest_->hex.empty()) {
    std::string hex = DigestMemo::of_user().sha256(descriptor_.get(), path_);
    require_same_content();
    digest_->hex = std::move(hex);
  }
  return digest_->hex;
}

void validate_safetensors(std::span<const std::byte> bytes, std::string_view name) {
  parse_safetensors_header(bytes, bytes.size(), name);
}

}  // namespace frt::models
