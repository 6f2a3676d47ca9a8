// SPDX-License-Identifier: Apache-2.0
// A copy goes through a folder of its own beside the target, ".import-XXXXXX": it is verified
// there, renamed (which fails if the name is taken), and the target's folder is synchronised.
// Whoever copies holds a lock on that folder, so one whose lock can be had was left behind and is
// cleared by the next copy. Process ids would not do: they are used again, and differ between
// containers that share a folder.
#include "lm/capsules/transfer.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <frt/capsule.hpp>
#include <frt/io/file.hpp>
#include <frt/io/retry.hpp>
#include <frt/io/write_advice.hpp>
#include <vector>

#include "lm/capsules/file.hpp"
#include "lm/capsules/name.hpp"
#include "lm/capsules/trust.hpp"

namespace frt::host {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStaging = ".import-";
constexpr const char* kStagedName = "import";
constexpr const char* kStaged = "import.capsule";
constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

frt_status status_of(int code) {
  switch (code) {
    case EEXIST:
      return FRT_ERR_EXISTS;
    case ENOENT:
      return FRT_ERR_NOT_FOUND;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return FRT_ERR_OUT_OF_MEMORY;
    default:
      return FRT_ERR_IO;
  }
}

// Of the copy: the original was opened by then.
[[noreturn]] void fail(const fs::path& path, int code) {
  throw Error(status_of(code),
              path.string() + ": " + std::strerror(code) + std::string(io::write_advice(code)));
}

void make_folder(const fs::path& folder) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) fail(folder, errno);
}

io::Descriptor opened(const fs::path& path, int flags) {
  io::Descriptor file(open(path.c_str(), flags | O_CLOEXEC, 0600));
  if (file.get() < 0) fail(path, errno);
  return file;
}

void write_all(const io::Descriptor& target, const fs::path& to, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put =
        io::retried([&] { return write(target.get(), bytes.data(), bytes.size()); });
    if (put < 0) fail(to, errno);
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
}

// A new file, on the disk, with the bytes of an open one. Nothing is left of it after a failure.
void copy_durably(const io::Descriptor& source, const fs::path& from, const fs::path& to) {
  const io::Descriptor target = opened(to, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
  try {
    std::vector<char> buffer(1 << 20);
    for (;;) {
      const ssize_t got =
          io::retried([&] { return read(source.get(), buffer.data(), buffer.size()); });
      if (got == 0) break;
      if (got < 0) fail(from, errno);
      write_all(target, to, {buffer.data(), static_cast<std::size_t>(got)});
    }
    if (io::retried([&] { return fsync(target.get()); }) != 0) fail(to, errno);
  } catch (...) {
    unlink(to.c_str());
    throw;
  }
}

// The folder where a copy is verified, gone with the object.
class Staging {
 public:
  explicit Staging(const fs::path& folder) {
    clear(folder);
    // Another import may clear the folder before it is opened or locked.
    for (struct stat facts{}; facts.st_nlink == 0;) {
      path_ = folder / (std::string(kStaging) + "XXXXXX");
      if (!mkdtemp(path_.data())) fail(folder, errno);
      lock_ = io::Descriptor(open(path_.c_str(), kFolderFlags));
      if (lock_.get() < 0 && errno == ENOENT) continue;
      if (lock_.get() < 0) fail(path_, errno);
      const auto lock = [&] { return flock(lock_.get(), LOCK_EX); };
      if (io::retried(lock) != 0 || fstat(lock_.get(), &facts) != 0) fail(path_, errno);
    }
  }
  ~Staging() { remove(path_, lock_); }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  fs::path folder() const { return path_; }
  fs::path file() const { return folder() / kStaged; }

 private:
  static void remove(const fs::path& path, const io::Descriptor& folder) {
    unlinkat(folder.get(), kStaged, 0);
    rmdir(path.c_str());
  }
  static void clear(const fs::path& folder) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder, ignored)) {
      if (!entry.path().filename().string().starts_with(kStaging)) continue;
      try {
        const io::Descriptor left = opened(entry.path(), kFolderFlags);
        if (flock(left.get(), LOCK_EX | LOCK_NB) == 0) remove(entry.path(), left);
      } catch (const Error&) {
        continue;  // no folder of an import
      }
    }
  }

  std::string path_;
  io::Descriptor lock_;
};

// Runs a step; what it says of the copy it says of the user's file.
template <class Step>
void naming(const fs::path& users, const Staging& staging, const Step& step) {
  try {
    step();
  } catch (const Error& error) {
    std::string text = error.what();
    const std::string copy = staging.file().string();
    if (const auto at = text.find(copy); at != std::string::npos) {
      text.replace(at, copy.size(), users.string());
    }
    throw Error(error.status(), text);
  }
}

void publish(const Staging& staging, const fs::path& target) {
  if (io::rename_new(AT_FDCWD, staging.file().c_str(), target.c_str()) != 0) fail(target, errno);
}

// What is open becomes `target`, verified. What is verified is the copy: the file may change, or be
// another one, at any time.
void take(const frt_capsules_v1& capsules, const io::Descriptor& source, const fs::path& from,
          const fs::path& target) {
  const fs::path folder = target.has_parent_path() ? target.parent_path() : ".";
  {
    const Staging staging(folder);
    naming(target, staging, [&] { copy_durably(source, from, staging.file()); });
    naming(from, staging, [&] { verify_capsule_file(capsules, staging.folder(), kStagedName); });
    publish(staging, target);
  }
  io::sync_folder(folder);
}

}  // namespace

void export_capsule(const frt_capsules_v1& capsules, const fs::path& folder,
                    const std::string& name, const fs::path& file, bool trust) {
  require_capsule_name(name);
  const fs::path from = folder / (name + kCapsuleSuffix);
  const io::Descriptor source = io::open_file(from, "capsule", io::Links::kRefuse);
  // The copy is this user's own, so nobody would be asked again.
  if (!trust) require_own_file(source, from);
  take(capsules, source, from, file);
}

std::string import_capsule(const frt_capsules_v1& capsules, const fs::path& folder,
                           const fs::path& file, const std::string& name, bool trust) {
  std::string chosen = name.empty() ? file.filename().string() : name;
  if (name.empty() && chosen.ends_with(kCapsuleSuffix)) {
    chosen.resize(chosen.size() - std::strlen(kCapsuleSuffix));
  }
  require_capsule_name(chosen);
  make_folder(folder);
  const io::Descriptor source = io::open_file(file, "capsule");
  if (!trust) {
    require_own_folder(folder);
    require_own_file(source, file);
  }
  take(capsules, source, file, folder / (chosen + kCapsuleSuffix));
  return chosen;
}

struct IncomingCapsule::State {
  explicit State(const fs::path& given)
      : folder(given),
        staging(given),
        file(opened(staging.file(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW)) {}

  const fs::path folder;
  const Staging staging;
  const io::Descriptor file;
};

IncomingCapsule::IncomingCapsule(const fs::path& folder, bool trust) {
  make_folder(folder);
  if (!trust) require_own_folder(folder);
  state_ = std::make_unique<State>(folder);
}

IncomingCapsule::~IncomingCapsule() = default;

void IncomingCapsule::write(std::string_view bytes) {
  write_all(state_->file, state_->staging.file(), bytes);
}

void IncomingCapsule::keep(const frt_capsules_v1& capsules, const std::string& name,
                           const std::function<void(const CapsuleContent&)>& accept) {
  require_capsule_name(name);
  const Staging& staging = state_->staging;
  if (io::retried([&] { return fsync(state_->file.get()); }) != 0) fail(staging.file(), errno);
  accept(verify_capsule_file(capsules, staging.folder(), kStagedName));
  publish(staging, state_->folder / (name + kCapsuleSuffix));
  io::sync_folder(state_->folder);
}

}  // namespace frt::host
