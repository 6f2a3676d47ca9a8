// SPDX-License-Identifier: Apache-2.0
// capsule_index.hpp - what is in a folder of capsules, without opening the files: an SQLite
// database beside them (index.sqlite).
//
// The files are the truth. Opening compares each row with its file's size, time and inode; rows
// without a file go, files that are new or changed are read (their manifest, not their payload),
// and a database that is missing or damaged is made anew from the files alone. A folder that
// cannot be written to is indexed in memory. A pin is an empty file NAME.pin, so that it outlives
// the index.
#pragma once

#include <frt/capsule.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lm/token_digest.hpp"

namespace frt::host {

// One file. What the content says (lm/capsule_content.hpp), and what the folder says.
struct IndexRow {
  std::string name;
  uint64_t file_bytes = 0;
  int64_t modified_ns = 0;
  uint64_t inode = 0;
  std::string problem;  // why the file is of no use; empty: it is. Then what follows is empty

  std::string kind, parent, owner, model;
  uint64_t created = 0;  // seconds since 1970
  uint64_t boundary = 0;
  bool cold_path = false;  // lm/token_journal.hpp
  TokenDigest digest;

  bool pinned = false;
  uint64_t last_used = 0;  // seconds since 1970
};

// What opening found.
struct IndexOpening {
  uint64_t kept = 0;    // rows that were right
  uint64_t read = 0;    // files that had to be read
  uint64_t gone = 0;    // rows whose file is gone
  std::string problem;  // why the database was made anew, or is in memory; empty: neither
};

// One thread at a time; several processes may use one folder.
class CapsuleIndex {
 public:
  // A folder that is missing is an empty one, and is not made. FRT_ERR_IO if it cannot be read.
  CapsuleIndex(const frt_capsules_v1& capsules, std::filesystem::path folder);
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
  void touch(const std::string& name, uint64_t when);
  // FRT_ERR_NOT_FOUND, FRT_ERR_IO.
  void pin(const std::string& name, bool pinned);
  // Removes the file, its pin and its row. FRT_ERR_NOT_FOUND, FRT_ERR_IO.
  void remove(const std::string& name);

 private:
  struct Database;
  void open_database();
  void synchronise();
  IndexRow examine(const std::string& name) const;
  void put(const IndexRow& row);

  const frt_capsules_v1& capsules_;
  std::filesystem::path folder_;
  std::unique_ptr<Database> database_;
  IndexOpening opening_;
};

// Seconds since 1970.
uint64_t unix_seconds();

}  // namespace frt::host
