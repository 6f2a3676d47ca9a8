// SPDX-License-Identifier: Apache-2.0
// index_database.hpp - the rows of a CapsuleIndex in an SQLite database, index.sqlite.
//
// The database is a cache and comes from outside: it may be damaged, or made to do harm. So it is
// used only if its schema is, letter for letter, the one table of ours; every row has a check sum;
// and sizes and steps are limited.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "lm/capsules/index.hpp"

struct sqlite3;

namespace frt::host {

class IndexDatabase {
 public:
  // Opens the database of a folder, or makes it. `files`: capsules in the folder, for the limits.
  // Throws FRT_ERR_FORMAT if it is not what this program wrote, FRT_ERR_BAD_STATE if others lock
  // it, FRT_ERR_IO.
  IndexDatabase(const std::filesystem::path& folder, uint64_t files);
  ~IndexDatabase();
  IndexDatabase(const IndexDatabase&) = delete;
  IndexDatabase& operator=(const IndexDatabase&) = delete;

  // All rows whose check sum is right. The functions below throw as the constructor does.
  std::vector<IndexRow> read() const;
  // All of it or nothing.
  void write(std::span<const IndexRow> changed, std::span<const std::string> gone) const;
  void touch(const std::string& name, uint64_t when) const;

  // Puts the files of a database that cannot be used out of the way: index.sqlite becomes
  // index.sqlite.damaged.
  static void set_aside(const std::filesystem::path& folder);

 private:
  class Statement;

  [[noreturn]] void fail() const;
  void run(const char* sql) const;
  void harden(uint64_t files);
  void check_schema();

  sqlite3* handle_ = nullptr;
  std::string where_;
  mutable uint64_t steps_ = 0;  // of the statement that runs, in thousands
  uint64_t most_steps_ = 0;
};

}  // namespace frt::host
