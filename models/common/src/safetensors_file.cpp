// SPDX-License-Identifier: Apache-2.0
// A mapped file. The mapping is private and read-only; nothing is read but the header until
// somebody looks at data. The descriptor stays open for read(). Names and shapes of all tensors lie
// in one string and one vector, which the views point into: 100,000 tensors cost two allocations,
// not 200,000.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <frt/error.hpp>
#include <frt/models/digest_memo.hpp>
#include <frt/models/safetensors.hpp>

#include <cerrno>
#include <cstring>
#include <functional>
#include <mutex>

#include "safetensors_header.hpp"
#include "text.hpp"

namespace frt::models {

struct SafetensorsFile::DigestCache {
  std::mutex mutex;
  std::string hex;  // empty until asked for
};

std::uint64_t TensorView::elements() const {
  std::uint64_t count = 1;
  for (const std::uint64_t extent : shape) count *= extent;
  return count;
}

std::shared_ptr<const SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  const std::shared_ptr<SafetensorsFile> file(new SafetensorsFile);
  file->path_ = path.string();
  file->digest_ = std::make_unique<DigestCache>();
  const auto refuse = [&](const char* what) {
    const int code = errno;
    throw Error(code == ENOENT || code == ENOTDIR ? FRT_ERR_NOT_FOUND : FRT_ERR_IO,
                file->path_ + ": cannot be " + what + ": " + std::strerror(code));
  };
  file->descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file->descriptor_ < 0) refuse("opened");
  struct stat status = {};
  if (::fstat(file->descriptor_, &status) != 0) refuse("examined");
  if (!S_ISREG(status.st_mode)) {
    throw Error(FRT_ERR_IO, file->path_ + ": is not a regular file");
  }
  file->bytes_ = static_cast<std::uint64_t>(status.st_size);
  if (file->bytes_ > 0) {
    void* base = ::mmap(nullptr, file->bytes_, PROT_READ, MAP_PRIVATE, file->descriptor_, 0);
    if (base == MAP_FAILED) refuse("mapped");
    file->base_ = static_cast<const std::byte*>(base);
  }

  const SafetensorsHeader header =
      parse_safetensors_header({file->base_, file->bytes_}, file->path_);
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
    file->tensors_.push_back(
        {.name = {name, entry.name.size()},
         .file = file->path_,
         .dtype = entry.dtype,
         .shape = {shape, entry.shape.size()},
         .data = {file->base_ + header.data_start + entry.begin, entry.end - entry.begin}});
  }
  file->metadata_ = header.metadata;
  return file;
}

SafetensorsFile::~SafetensorsFile() {
  if (base_) ::munmap(const_cast<std::byte*>(base_), bytes_);
  if (descriptor_ >= 0) ::close(descriptor_);
}

bool SafetensorsFile::holds(std::span<const std::byte> part) const {
  const std::less_equal<> before;  // of pointers into different objects
  return base_ && before(base_, part.data()) && before(part.data() + part.size(), base_ + bytes_);
}

void SafetensorsFile::read(std::span<const std::byte> part, std::byte* target) const {
  if (!holds(part)) {
    throw Error(FRT_ERR_OUT_OF_RANGE, path_ + ": a read outside the file");
  }
  const auto offset = static_cast<std::uint64_t>(part.data() - base_);
  for (std::uint64_t done = 0; done < part.size();) {
    const ssize_t got =
        ::pread(descriptor_, target + done, part.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      throw Error(FRT_ERR_IO, path_ + ": cannot be read: " + std::strerror(errno));
    }
    if (got == 0) {
      throw Error(FRT_ERR_IO, path_ + ": ends at byte " + std::to_string(offset + done) +
                                  ", expected " + std::to_string(bytes_) +
                                  " bytes; it was changed while it was being loaded");
    }
    done += static_cast<std::uint64_t>(got);
  }
}

const std::string& SafetensorsFile::sha256() const {
  const std::lock_guard lock(digest_->mutex);
  if (digest_->hex.empty()) digest_->hex = DigestMemo::of_user().sha256(descriptor_, path_);
  return digest_->hex;
}

void validate_safetensors(std::span<const std::byte> bytes, std::string_view name) {
  parse_safetensors_header(bytes, name);
}

}  // namespace frt::models
