// SPDX-License-Identifier: Apache-2.0
// index.hpp - what is in a folder of capsules, without opening the files.
//
// The files are the truth. What was read of them is kept in a database beside them
// (index_database.hpp), a cache: opening takes a row only if its check sum is right and
// size, time and inode are its file's, reads every other file (its manifest, not its payload), and
// goes on without the database if that cannot be used. Nothing that the database says ever removes
// a file: evict() asks the file itself.
//
// A pin is an empty file NAME.pin, so that it outlives the index.
#pragma once

#include <frt/capsule.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lm/capsules/use.hpp"
#include "lm/token_digest.hpp"

namespace frt::host {

// One file. What the content says (lm/capsules/content.hpp), and what the folder says.
struct IndexRow {
  std::string name{};
  uint64_t file_bytes = 0;
  int64_t modified_ns = 0;
  uint64_t inode = 0;
  std::string problem{};  // why the file is of no use; empty: it is. Then what follows is empty
  bool damaged = false;   // the problem is in the file itself

  // `kind`: "named" for every file that a budget must not remove (name.hpp).
  std::string kind{}, parent{}, owner{}, model{};
  uint64_t created = 0;  // seconds since 1970
  uint64_t boundary = 0;
  bool cold_path = false;  // lm/token_journal.hpp
  TokenDigest digest{};
  std::string fingerprint{};  // lm/capsules/content.hpp

  bool pinned = false;
  uint64_t last_used = 0;  // seconds since 1970
};

// What opening found.
struct IndexOpening {
  uint64_t kept = 0;      // rows that were right
  uint64_t read = 0;      // files that had to be read
  uint64_t gone = 0;      // rows whose file is gone
  std::string problem{};  // why the database was made anew, or is not used; empty: neither
};

class IndexDatabase;

// One thread at a time; several processes may use one folder.
class CapsuleIndex {
 public:
  // A folder that is missing is an empty one, and is not made. `trust`: files that others can write
  // are of use, too (trust.hpp). FRT_ERR_IO if the folder cannot be read.
  CapsuleIndex(const frt_capsules_v1& capsules, std::filesystem::path folder, bool trust = false);
  ~CapsuleIndex();
  CapsuleIndex(const CapsuleIndex&) = delete;
  CapsuleIndex& operator=(const CapsuleIndex&) = delete;

  const IndexOpening& opening() const noexcept { return opening_; }
  const std::filesystem::path& folder() const noexcept { return folder_; }

  // By name.
  std::vector<IndexRow> rows() const;
  // Reads the file `name` again and takes it in; gone files go. Returns the row, or one without a
  // name if there is no such file.
  IndexRow refresh(const std::string& name);
  // Reads every file again but its payload.
  void refresh_all();
  // Notes that the file, as it is now, was found damaged when its payload was read.
  void mark_damaged(const std::string& name, const std::string& problem);
  void touch(const std::string& name, uint64_t when);
  // Returns when it is on the disk. FRT_ERR_NOT_FOUND, FRT_ERR_INVALID_ARGUMENT (the name),
  // FRT_ERR_IO.
  void pin(const std::string& name, bool pinned);

  // ---- removing ----
  // Removes the file, its pin and its row, because somebody said so. FRT_ERR_NOT_FOUND,
  // FRT_ERR_INVALID_ARGUMENT, FRT_ERR_IO.
  void remove(const std::string& name);
  // Removes what a budget has no room for. Only a file that says itself that it was made by itself,
  // is not pinned, and that no other process uses. Returns why it stays; empty: it is gone.
  // FRT_ERR_IO.
  std::string evict(const std::string& name);
  // This process uses the file from now on; false: another one may be removing it
  // (use.hpp).
  bool hold(const std::string& name) { return use_.hold(name); }
  // It does no more.
  void release(const std::string& name) { use_.release(name); }

  // Why the database is no more used, since the last call; empty: it is.
  std::string take_problem();

 private:
  void open_database();
  void synchronise();
  IndexRow examine(const std::string& name) const;
  std::vector<IndexRow> examine(const std::vector<std::string>& names) const;
  void store(const std::vector<std::string>& names);
  void give_up_database(const std::string& reason);
  void forget(const std::string& name);

  const frt_capsules_v1& capsules_;
  std::filesystem::path folder_;
  bool trust_;
  std::map<std::string, IndexRow> rows_;
  std::unique_ptr<IndexDatabase> database_;  // null: cannot be used
  std::set<std::string> unwritten_;          // names whose rows the database lacks
  CapsuleUse use_;
  IndexOpening opening_;
  std::string problem_;
};

// Seconds since 1970.
uint64_t unix_seconds();

}  // namespace frt::host
