// SPDX-License-Identifier: Apache-2.0
// The rows are in memory; the database only saves reading the files at the next opening. Whatever
// it meets leads to one of two answers: set it aside and make it anew from the files, or, if it is
// in use or the folder refuses, go on without it. No caller fails because of it.
#include "lm/capsules/index.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <frt/capsule.hpp>
#include <frt/io/file.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "lm/capsules/content.hpp"
#include "lm/capsules/file.hpp"
#include "lm/capsules/index_database.hpp"
#include "lm/capsules/name.hpp"
#include "lm/capsules/trust.hpp"

namespace frt::host {
namespace {

constexpr const char* kPin = ".pin";
constexpr std::size_t kMostProblem = 1024;  // bytes of a reason

struct FileFacts {
  uint64_t bytes = 0;
  int64_t modified_ns = 0;
  uint64_t inode = 0;
  bool own = false;  // trust.hpp
};

std::optional<FileFacts> facts_of(const std::filesystem::path& path) {
  struct stat facts {};
  if (lstat(path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) return std::nullopt;
  return FileFacts{static_cast<uint64_t>(facts.st_size),
                   int64_t{facts.st_mtim.tv_sec} * 1'000'000'000 + facts.st_mtim.tv_nsec,
                   static_cast<uint64_t>(facts.st_ino), is_own_file(facts)};
}

// A pin that is there stays as it is. Root gives one that it made to the owner of the folder.
void make_pin(const std::filesystem::path& folder, const std::string& path) {
  if (facts_of(path)) return;
  const io::Descriptor file = io::new_file(path, "pin");
  if (geteuid() != 0) return;
  const io::Descriptor owned = io::open_folder(folder, "folder of the capsules");
  struct stat facts {};
  if (fstat(owned.get(), &facts) == 0 && fchown(file.get(), facts.st_uid, facts.st_gid) == 0) {
    return;
  }
  const int code = errno;
  unlink(path.c_str());
  throw Error(FRT_ERR_IO,
              path + ": it cannot be given to the owner of the folder: " + std::strerror(code));
}

bool is_of(const IndexRow& row, const FileFacts& file) {
  return row.file_bytes == file.bytes && row.modified_ns == file.modified_ns &&
         row.inode == file.inode;
}

}  // namespace

uint64_t unix_seconds() {
  return static_cast<uint64_t>(std::time(nullptr));
}

CapsuleIndex::CapsuleIndex(const frt_capsules_v1& capsules, std::filesystem::path folder,
                           bool trust)
    : capsules_(capsules), folder_(std::move(folder)), trust_(trust), use_(folder_) {
  synchronise();
}

CapsuleIndex::~CapsuleIndex() {
  try {
    store({});
  } catch (const std::exception&) {
    // A cache that lacks rows is corrected by the next opening.
  }
}

// ---- opening ----

void CapsuleIndex::synchronise() {
  std::error_code failure;
  const bool there = std::filesystem::is_directory(folder_, failure);
  std::map<std::string, FileFacts> files;
  if (there) {
    for (const std::string& name : list_capsules(capsules_, folder_)) {
      if (const auto facts = facts_of(folder_ / (name + kCapsuleSuffix))) {
        files.emplace(name, *facts);
      }
    }
  }
  std::vector<std::string> gone;
  const auto take_over = [&] {
    for (IndexRow& row : database_->read()) {
      const auto file = files.find(row.name);
      if (file == files.end()) {
        gone.push_back(row.name);
      } else if (is_of(row, file->second) && (trust_ || file->second.own) &&
                 (row.problem.empty() || row.damaged)) {
        row.pinned = facts_of(folder_ / (row.name + kPin)).has_value();
        rows_.insert_or_assign(row.name, std::move(row));
      }
    }
  };
  // Twice at most: as it is, and made anew.
  for (bool anew = false; there; anew = true) {
    try {
      if (access(folder_.c_str(), W_OK) != 0) {
        throw Error(FRT_ERR_IO, folder_.string() + " cannot be written to");
      }
      // Root may write everywhere, but the owner could not use what root has made.
      if (struct stat facts{};
          geteuid() == 0 && (stat(folder_.c_str(), &facts) != 0 || facts.st_uid != 0)) {
        throw Error(FRT_ERR_IO, folder_.string() + " is another user's");
      }
      if (anew) IndexDatabase::set_aside(folder_);
      database_ = std::make_unique<IndexDatabase>(folder_, files.size());
      take_over();
      break;
    } catch (const Error& error) {
      database_.reset();
      rows_.clear();
      gone.clear();
      if (anew || error.status() != FRT_ERR_FORMAT) {
        opening_.problem = std::string("the index of capsules is not used: ") + error.what();
        break;
      }
      opening_.problem = std::string("the index of capsules was made anew: ") + error.what();
    }
  }
  opening_.kept = rows_.size();
  std::vector<std::string> unknown;
  for (const auto& [name, facts] : files) {
    if (!rows_.contains(name)) unknown.push_back(name);
  }
  opening_.read = unknown.size();
  opening_.gone = gone.size();
  for (IndexRow& row : examine(unknown)) {
    if (!row.name.empty()) rows_.insert_or_assign(row.name, std::move(row));
  }
  gone.insert(gone.end(), unknown.begin(), unknown.end());
  store(gone);
}

// Files are read side by side: it is hashing and parsing more than waiting.
std::vector<IndexRow> CapsuleIndex::examine(const std::vector<std::string>& names) const {
  std::vector<IndexRow> rows(names.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < names.size(); i = next++) rows[i] = examine(names[i]);
  };
  const std::size_t helpers = std::min<std::size_t>(
      {names.size() / 16, std::max(1u, std::thread::hardware_concurrency()) - 1, 7});
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < helpers; ++i) threads.emplace_back(work);
  work();
  threads.clear();
  return rows;
}

IndexRow CapsuleIndex::examine(const std::string& name) const {
  IndexRow row;
  const std::filesystem::path path = folder_ / (name + kCapsuleSuffix);
  const auto facts = facts_of(path);
  if (!facts) return row;
  row.name = name;
  row.file_bytes = facts->bytes;
  row.modified_ns = facts->modified_ns;
  row.inode = facts->inode;
  row.last_used = static_cast<uint64_t>(facts->modified_ns / 1'000'000'000);
  row.pinned = facts_of(folder_ / (name + kPin)).has_value();
  try {
    if (!trust_) {
      require_own_file(io::open_file(path, "capsule", io::Links::kRefuse), path);
    }
    const CapsuleContent content = read_capsule_content(capsules_, folder_, name);
    row.kind = capsule_kind_name(is_automatic(content, name) ? content.kind : CapsuleKind::kNamed);
    row.parent = content.parent;
    row.owner = content.owner;
    row.model = content.model;
    row.created = content.created;
    row.boundary = content.boundary();
    row.cold_path = on_cold_path(content.path, content.chunk);
    row.digest = content.digest;
    row.fingerprint = content.fingerprint;
  } catch (const std::exception& problem) {
    const auto* error = dynamic_cast<const Error*>(&problem);
    row.problem = std::string(problem.what()).substr(0, kMostProblem);
    row.damaged = error && error->status() == FRT_ERR_FORMAT;
  }
  return row;
}

// ---- rows ----

std::vector<IndexRow> CapsuleIndex::rows() const {
  std::vector<IndexRow> rows;
  for (const auto& [name, row] : rows_) rows.push_back(row);
  return rows;
}

void CapsuleIndex::give_up_database(const std::string& reason) {
  database_.reset();
  problem_ = "the index of capsules is no more used by this process: " + reason;
}

std::string CapsuleIndex::take_problem() {
  return std::exchange(problem_, {});
}

// The rows of `names` in the database become as they are here, together with those of which others
// locked it out.
void CapsuleIndex::store(const std::vector<std::string>& names) {
  if (!database_) return;
  unwritten_.insert(names.begin(), names.end());
  if (unwritten_.empty()) return;
  std::vector<IndexRow> changed;
  std::vector<std::string> gone;
  for (const std::string& name : unwritten_) {
    const auto row = rows_.find(name);
    row == rows_.end() ? gone.push_back(name) : changed.push_back(row->second);
  }
  try {
    database_->write(changed, gone);
    unwritten_.clear();
  } catch (const Error& error) {
    if (error.status() != FRT_ERR_BAD_STATE) give_up_database(error.what());
  }
}

void CapsuleIndex::forget(const std::string& name) {
  rows_.erase(name);
  store({name});
}

IndexRow CapsuleIndex::refresh(const std::string& name) {
  IndexRow row = examine(name);
  if (row.name.empty()) {
    forget(name);
    return row;
  }
  rows_.insert_or_assign(name, row);
  store({name});
  return row;
}

void CapsuleIndex::refresh_all() {
  std::vector<std::string> names;
  for (const auto& [name, row] : rows_) names.push_back(name);
  std::vector<IndexRow> found = examine(names);
  for (std::size_t i = 0; i < names.size(); ++i) {
    IndexRow& row = found[i];
    if (row.name.empty()) {
      rows_.erase(names[i]);
      continue;
    }
    IndexRow& known = rows_.at(names[i]);
    row.last_used = known.last_used;
    // Its payload was not read now; what was found there is still so in the same file.
    const bool same = is_of(known, {row.file_bytes, row.modified_ns, row.inode, true});
    if (known.damaged && row.problem.empty() && same) row = known;
    known = std::move(row);
  }
  store(names);
}

void CapsuleIndex::mark_damaged(const std::string& name, const std::string& problem) {
  IndexRow row = examine(name);
  if (row.name.empty()) return forget(name);
  row.problem = problem.substr(0, kMostProblem);
  row.damaged = true;
  rows_.insert_or_assign(name, row);
  store({name});
}

void CapsuleIndex::touch(const std::string& name, uint64_t when) {
  const auto row = rows_.find(name);
  if (row == rows_.end()) return;
  row->second.last_used = when;
  if (!database_) return;
  try {
    database_->touch(name, when);
    store({});
  } catch (const Error& error) {
    if (error.status() != FRT_ERR_BAD_STATE) give_up_database(error.what());
  }
}

void CapsuleIndex::pin(const std::string& name, bool pinned) {
  require_capsule_name(name);
  if (!facts_of(folder_ / (name + kCapsuleSuffix))) {
    throw Error(FRT_ERR_NOT_FOUND, "no capsule '" + name + "' in " + folder_.string());
  }
  const std::string path = folder_ / (name + kPin);
  if (pinned) {
    make_pin(folder_, path);
  } else if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    throw Error(FRT_ERR_IO, path + ": " + std::strerror(errno) +
                                "; pins are files, so the folder must be writable");
  }
  io::sync_folder(folder_);  // what was acknowledged outlives a power cut
  if (const auto row = rows_.find(name); row != rows_.end()) row->second.pinned = pinned;
}

// ---- removing ----

void CapsuleIndex::remove(const std::string& name) {
  remove_capsule(capsules_, folder_, name);
  unlink((folder_ / (name + kPin)).c_str());
  use_.release(name);
  forget(name);
}

std::string CapsuleIndex::evict(const std::string& name) {
  if (!use_.claim(name)) return "another process uses it, or .in-use cannot be opened";
  const auto stays = [&](const std::string& why) {
    use_.yield(name);
    return why;
  };
  const IndexRow file = refresh(name);
  if (file.name.empty()) {
    use_.release(name);
    return {};  // somebody else removed it
  }
  if (!file.problem.empty()) return stays(file.problem);
  if (file.kind == capsule_kind_name(CapsuleKind::kNamed)) return stays("it has a name of its own");
  if (file.pinned) return stays("it is pinned");
  try {
    remove(name);
  } catch (const Error& error) {
    return stays(error.what());
  }
  return {};
}

}  // namespace frt::host
