// SPDX-License-Identifier: Apache-2.0
// Importing goes through a folder of its own beside the capsules, ".import-PID": the copy is
// verified there, linked to its name (which fails if there is one), and the folder is synchronised.
// Folders of processes that are gone are cleared by the next import.
#include "lm/capsule_transfer.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <frt/capsule.hpp>
#include <vector>

namespace frt::host {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSuffix = ".capsule";
constexpr std::string_view kStaging = ".import-";

[[noreturn]] void fail(const fs::path& path, int code) {
  throw Error(code == EEXIST   ? FRT_ERR_EXISTS
              : code == ENOENT ? FRT_ERR_NOT_FOUND
                               : FRT_ERR_IO,
              path.string() + ": " + std::strerror(code));
}

class File {
 public:
  File(const fs::path& path, int flags)
      : path_(path), descriptor_(open(path.c_str(), flags, 0600)) {
    if (descriptor_ < 0) fail(path, errno);
  }
  ~File() { close(descriptor_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const noexcept { return descriptor_; }
  void sync() const {
    if (fsync(descriptor_) != 0) fail(path_, errno);
  }

 private:
  fs::path path_;
  int descriptor_;
};

// A new file with the bytes of another, on the disk. Nothing is left of it after a failure.
void copy_durably(const fs::path& from, const fs::path& to) {
  const File source(from, O_RDONLY | O_CLOEXEC);
  const File target(to, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC);
  try {
    std::vector<char> buffer(1 << 20);
    for (;;) {
      const ssize_t got = read(source.get(), buffer.data(), buffer.size());
      if (got == 0) break;
      if (got < 0) fail(from, errno);
      for (ssize_t at = 0; at < got;) {
        const ssize_t put = write(target.get(), buffer.data() + at, static_cast<size_t>(got - at));
        if (put < 0) fail(to, errno);
        at += put;
      }
    }
    target.sync();
  } catch (...) {
    unlink(to.c_str());
    throw;
  }
}

void clear_staging(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kStaging)) continue;
    const int owner = std::atoi(name.c_str() + kStaging.size());
    if (owner > 0 && kill(owner, 0) != 0 && errno == ESRCH) fs::remove_all(entry.path(), ignored);
  }
}

}  // namespace

void export_capsule(const frt_capsules_v1& capsules, const fs::path& folder,
                    const std::string& name, const fs::path& file) {
  verify_capsule(capsules, folder, name);
  copy_durably(folder / (name + kSuffix), file);
}

std::string import_capsule(const frt_capsules_v1& capsules, const fs::path& folder,
                           const fs::path& file, const std::string& name) {
  std::string chosen = name.empty() ? file.filename().string() : name;
  if (name.empty() && chosen.ends_with(kSuffix)) {
    chosen.resize(chosen.size() - std::strlen(kSuffix));
  }
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) fail(folder, errno);
  clear_staging(folder);
  const fs::path staging = folder / (std::string(kStaging) + std::to_string(getpid()));
  if (mkdir(staging.c_str(), 0700) != 0) fail(staging, errno);
  std::error_code ignored;
  try {
    // Under a name of our own: the chosen one is only looked at by those who know the rule.
    copy_durably(file, staging / (std::string("import") + kSuffix));
    verify_capsule(capsules, staging, "import");
    try {
      describe_capsule(capsules, folder, chosen);
      fail(folder / (chosen + kSuffix), EEXIST);
    } catch (const Error& error) {
      if (error.status() != FRT_ERR_NOT_FOUND) throw;  // against the rule, or there already
    }
    const fs::path target = folder / (chosen + kSuffix);
    if (link((staging / (std::string("import") + kSuffix)).c_str(), target.c_str()) != 0) {
      fail(target, errno);
    }
    fs::remove_all(staging, ignored);
    File(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC).sync();
  } catch (...) {
    fs::remove_all(staging, ignored);
    throw;
  }
  return chosen;
}

}  // namespace frt::host
