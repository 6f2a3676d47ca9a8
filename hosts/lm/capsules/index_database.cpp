// SPDX-License-Identifier: Apache-2.0
// One table, one row per file, in WAL mode so that programs which read do not stop the one that
// writes.
//
// Opening, in this order: the files are regular, of this user, and not larger than the capsules
// explain; the schema is ours; the pages hold together. A row carries the XXH3 of its other columns
// but last_used, which is written alone and only orders what is given up.
#include "lm/capsules/index_database.hpp"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <frt/error.hpp>

namespace frt::host {
namespace {

constexpr int kSchema = 3;             // PRAGMA user_version
constexpr int kPatienceMs = 250;       // for others who write; a cache is not worth more
constexpr uint64_t kRowBytes = 16384;  // the most that a row takes in the file, and in the log
constexpr uint64_t kMostBase = uint64_t{32} << 20;
constexpr const char* kDatabase = "index.sqlite";
constexpr const char* kCompanions[] = {"-wal", "-shm", "-journal"};

// Written by SQLite into the schema as it stands here.
constexpr const char* kTable =
    "CREATE TABLE capsules ("
    "name TEXT PRIMARY KEY, file_bytes INTEGER, modified_ns INTEGER, inode INTEGER, problem TEXT, "
    "damaged INTEGER, kind TEXT, parent TEXT, owner TEXT, model TEXT, created INTEGER, "
    "boundary INTEGER, cold_path INTEGER, digest TEXT, fingerprint TEXT, last_used INTEGER, "
    "row_sum TEXT) WITHOUT ROWID";
constexpr const char* kColumns =
    "name, file_bytes, modified_ns, inode, problem, damaged, kind, parent, owner, model, created, "
    "boundary, cold_path, digest, fingerprint, last_used, row_sum";

std::string sum_of(const IndexRow& row) {
  std::string bytes;
  const auto text = [&](const std::string& value) {
    const uint64_t length = value.size();
    bytes.append(reinterpret_cast<const char*>(&length), sizeof(length));
    bytes += value;
  };
  const auto number = [&](uint64_t value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  for (const std::string* value : {&row.name, &row.problem, &row.kind, &row.parent, &row.owner,
                                   &row.model, &row.fingerprint}) {
    text(*value);
  }
  for (const uint64_t value :
       {row.file_bytes, static_cast<uint64_t>(row.modified_ns), row.inode, uint64_t{row.damaged},
        row.created, row.boundary, uint64_t{row.cold_path}, row.digest.high, row.digest.low}) {
    number(value);
  }
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return to_text({hash.high64, hash.low64});
}

// The bytes of a file that SQLite may open, 0 if there is none.
uint64_t usable_bytes(const std::string& path) {
  struct stat facts {};
  if (lstat(path.c_str(), &facts) != 0) {
    if (errno == ENOENT) return 0;
    throw Error(FRT_ERR_IO, path + ": " + std::strerror(errno));
  }
  if (!S_ISREG(facts.st_mode)) throw Error(FRT_ERR_FORMAT, path + ": no regular file");
  if (facts.st_uid != geteuid() && facts.st_uid != 0) {
    throw Error(FRT_ERR_IO, path + ": another user's");
  }
  return static_cast<uint64_t>(facts.st_size);
}

}  // namespace

class IndexDatabase::Statement {
 public:
  Statement(const IndexDatabase& owner, const std::string& sql) : owner_(owner) {
    owner.steps_ = 0;
    if (sqlite3_prepare_v2(owner.handle_, sql.c_str(), -1, &statement_, nullptr) != SQLITE_OK) {
      owner.fail();
    }
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& bind(const std::string& text) {
    sqlite3_bind_text(statement_, ++bound_, text.data(), static_cast<int>(text.size()),
                      SQLITE_TRANSIENT);
    return *this;
  }
  Statement& bind(int64_t number) {
    sqlite3_bind_int64(statement_, ++bound_, number);
    return *this;
  }
  Statement& bind(uint64_t number) { return bind(static_cast<int64_t>(number)); }
  // False: no more rows.
  bool step() {
    const int code = sqlite3_step(statement_);
    if (code != SQLITE_ROW && code != SQLITE_DONE) owner_.fail();
    return code == SQLITE_ROW;
  }
  std::string text(int column) const {
    const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
    return bytes ? std::string(bytes,
                               static_cast<std::size_t>(sqlite3_column_bytes(statement_, column)))
                 : std::string();
  }
  int64_t integer(int column) const { return sqlite3_column_int64(statement_, column); }
  uint64_t number(int column) const { return static_cast<uint64_t>(integer(column)); }

 private:
  const IndexDatabase& owner_;
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
};

IndexDatabase::IndexDatabase(const std::filesystem::path& folder, uint64_t files)
    : where_(folder / kDatabase) {
  const uint64_t most = kMostBase + files * kRowBytes;
  uint64_t bytes = usable_bytes(where_);
  for (const char* companion : kCompanions) {
    bytes = std::max(bytes, usable_bytes(where_ + companion));
  }
  if (bytes > most) {
    throw Error(FRT_ERR_FORMAT,
                where_ + ": larger than an index of " + std::to_string(files) + " capsules can be");
  }
  // SQLite would give a new file the mode that the umask leaves.
  const int file =
      open(where_.c_str(), O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_WRONLY, 0600);
  if (file >= 0) close(file);
  try {
    const int code = sqlite3_open_v2(where_.c_str(), &handle_, SQLITE_OPEN_READWRITE, nullptr);
    if (!handle_) throw Error(FRT_ERR_IO, where_ + ": " + sqlite3_errstr(code));
    if (code != SQLITE_OK) fail();
    harden(files);
    check_schema();
  } catch (...) {
    sqlite3_close(handle_);
    throw;
  }
}

IndexDatabase::~IndexDatabase() {
  sqlite3_close(handle_);
}

// Only what the file itself says makes it one that is not ours. Anything else (no descriptor is
// free, the disk fails) leaves it as it is: other processes use it.
void IndexDatabase::fail() const {
  const std::string what = where_ + ": " + sqlite3_errmsg(handle_);
  switch (sqlite3_errcode(handle_) & 0xFF) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:
      throw Error(FRT_ERR_BAD_STATE, what);
    case SQLITE_ERROR:  // a file format or a table that is not known
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_INTERRUPT:
    case SQLITE_SCHEMA:
    case SQLITE_MISMATCH:
      throw Error(FRT_ERR_FORMAT, what);
    default:
      throw Error(FRT_ERR_IO, what);
  }
}

void IndexDatabase::run(const char* sql) const {
  steps_ = 0;
  if (sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr) != SQLITE_OK) fail();
}

void IndexDatabase::harden(uint64_t files) {
  sqlite3_busy_timeout(handle_, kPatienceMs);
  const auto set = [&](int option, int value) {
    sqlite3_db_config(handle_, option, value, static_cast<int*>(nullptr));
  };
  set(SQLITE_DBCONFIG_DEFENSIVE, 1);
  set(SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0);
  set(SQLITE_DBCONFIG_ENABLE_TRIGGER, 0);
  set(SQLITE_DBCONFIG_ENABLE_VIEW, 0);
  sqlite3_limit(handle_, SQLITE_LIMIT_LENGTH, static_cast<int>(kRowBytes) * 4);
  sqlite3_limit(handle_, SQLITE_LIMIT_ATTACHED, 0);
  most_steps_ = 10'000 + files;
  sqlite3_progress_handler(
      handle_, 1000,
      [](void* self) {
        auto& database = *static_cast<IndexDatabase*>(self);
        return ++database.steps_ > database.most_steps_ ? 1 : 0;
      },
      this);
}

void IndexDatabase::check_schema() {
  const auto refuse = [&](const std::string& what) {
    throw Error(FRT_ERR_FORMAT, where_ + ": " + what);
  };
  const auto tables = [&] {
    std::vector<std::string> found;
    Statement schema(*this, "SELECT sql FROM sqlite_schema LIMIT 2");
    while (schema.step()) found.push_back(schema.text(0));
    return found;
  };
  if (tables().empty()) {
    run("PRAGMA journal_mode = WAL");
    run("BEGIN IMMEDIATE");
    if (tables().empty()) {  // else another process was faster
      run(kTable);
      run(("PRAGMA user_version = " + std::to_string(kSchema)).c_str());
    }
    run("COMMIT");
  }
  if (tables() != std::vector<std::string>{kTable}) {
    refuse("its tables are not those of this program");
  }
  {
    Statement version(*this, "PRAGMA user_version");
    if (!version.step() || version.integer(0) != kSchema) refuse("of another version");
  }
  run("PRAGMA synchronous = FULL");
  Statement check(*this, "PRAGMA quick_check(1)");
  if (!check.step() || check.text(0) != "ok") refuse("damaged");
}

std::vector<IndexRow> IndexDatabase::read() const {
  std::vector<IndexRow> rows;
  Statement all(*this, std::string("SELECT ") + kColumns + " FROM capsules");
  while (all.step()) {
    IndexRow row;
    row.name = all.text(0);
    row.file_bytes = all.number(1);
    row.modified_ns = all.integer(2);
    row.inode = all.number(3);
    row.problem = all.text(4);
    row.damaged = all.integer(5) != 0;
    row.kind = all.text(6);
    row.parent = all.text(7);
    row.owner = all.text(8);
    row.model = all.text(9);
    row.created = all.number(10);
    row.boundary = all.number(11);
    row.cold_path = all.integer(12) != 0;
    try {
      row.digest = digest_from_text(all.text(13));
    } catch (const Error&) {
      continue;
    }
    row.fingerprint = all.text(14);
    row.last_used = all.number(15);
    if (all.text(16) == sum_of(row)) rows.push_back(std::move(row));
  }
  return rows;
}

void IndexDatabase::write(std::span<const IndexRow> changed,
                          std::span<const std::string> gone) const {
  run("BEGIN IMMEDIATE");
  try {
    for (const std::string& name : gone) {
      Statement(*this, "DELETE FROM capsules WHERE name = ?").bind(name).step();
    }
    for (const IndexRow& row : changed) {
      Statement(*this, std::string("INSERT OR REPLACE INTO capsules (") + kColumns +
                           ") VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)")
          .bind(row.name)
          .bind(row.file_bytes)
          .bind(row.modified_ns)
          .bind(row.inode)
          .bind(row.problem)
          .bind(uint64_t{row.damaged})
          .bind(row.kind)
          .bind(row.parent)
          .bind(row.owner)
          .bind(row.model)
          .bind(row.created)
          .bind(row.boundary)
          .bind(uint64_t{row.cold_path})
          .bind(to_text(row.digest))
          .bind(row.fingerprint)
          .bind(row.last_used)
          .bind(sum_of(row))
          .step();
    }
    run("COMMIT");
  } catch (...) {
    sqlite3_exec(handle_, "ROLLBACK", nullptr, nullptr, nullptr);
    throw;
  }
}

void IndexDatabase::touch(const std::string& name, uint64_t when) const {
  Statement(*this, "UPDATE capsules SET last_used = ? WHERE name = ?").bind(when).bind(name).step();
}

void IndexDatabase::set_aside(const std::filesystem::path& folder) {
  const std::string path = folder / kDatabase;
  if (rename(path.c_str(), (path + ".damaged").c_str()) != 0 && errno != ENOENT) {
    throw Error(FRT_ERR_IO, path + ": it cannot be renamed: " + std::strerror(errno));
  }
  for (const char* companion : kCompanions) unlink((path + companion).c_str());
}

}  // namespace frt::host
