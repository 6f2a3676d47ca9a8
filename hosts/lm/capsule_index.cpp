// SPDX-License-Identifier: Apache-2.0
// One table, one row per file, in WAL mode so that programs which read do not stop the one that
// writes. Whatever SQLite finds wrong with the database while it is opened leads to the same
// answer: throw it away and read the folder.
#include "lm/capsule_index.hpp"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <frt/capsule.hpp>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "lm/capsule_content.hpp"

namespace frt::host {
namespace {

constexpr int kSchema = 1;  // PRAGMA user_version
constexpr const char* kDatabase = "index.sqlite";
constexpr const char* kSuffix = ".capsule";
constexpr const char* kPin = ".pin";

constexpr const char* kCreate = R"(
CREATE TABLE IF NOT EXISTS capsules (
  name TEXT PRIMARY KEY, file_bytes INTEGER, modified_ns INTEGER, inode INTEGER, problem TEXT,
  kind TEXT, parent TEXT, owner TEXT, model TEXT, created INTEGER, boundary INTEGER,
  cold_path INTEGER, digest TEXT, last_used INTEGER) WITHOUT ROWID;
)";
constexpr const char* kColumns =
    "name, file_bytes, modified_ns, inode, problem, kind, parent, owner, model, created, boundary, "
    "cold_path, digest, last_used";

struct FileFacts {
  uint64_t bytes = 0;
  int64_t modified_ns = 0;
  uint64_t inode = 0;
};

std::optional<FileFacts> facts_of(const std::filesystem::path& path) {
  struct stat facts {};
  if (lstat(path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) return std::nullopt;
  return FileFacts{static_cast<uint64_t>(facts.st_size),
                   int64_t{facts.st_mtim.tv_sec} * 1'000'000'000 + facts.st_mtim.tv_nsec,
                   static_cast<uint64_t>(facts.st_ino)};
}

}  // namespace

uint64_t unix_seconds() {
  return static_cast<uint64_t>(std::time(nullptr));
}

// The connection. Every failure is an Error with SQLite's own words.
struct CapsuleIndex::Database {
  sqlite3* handle = nullptr;
  std::string where;

  explicit Database(const std::string& path) : where(path) {
    const int code =
        sqlite3_open_v2(path.c_str(), &handle, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
    if (code != SQLITE_OK) {
      const std::string reason = handle ? sqlite3_errmsg(handle) : sqlite3_errstr(code);
      sqlite3_close(handle);
      throw Error(FRT_ERR_IO, path + ": " + reason);
    }
    sqlite3_busy_timeout(handle, 10'000);
  }
  ~Database() { sqlite3_close(handle); }
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // FRT_ERR_FORMAT: the database is not what this program wrote.
  [[noreturn]] void fail() const {
    const int code = sqlite3_errcode(handle);
    const bool damaged = code == SQLITE_CORRUPT || code == SQLITE_NOTADB || code == SQLITE_ERROR;
    throw Error(damaged ? FRT_ERR_FORMAT : FRT_ERR_IO, where + ": " + sqlite3_errmsg(handle));
  }
  void run(const char* sql) const {
    if (sqlite3_exec(handle, sql, nullptr, nullptr, nullptr) != SQLITE_OK) fail();
  }

  class Statement {
   public:
    Statement(const Database& owner, const std::string& sql) : owner_(owner) {
      if (sqlite3_prepare_v2(owner.handle, sql.c_str(), -1, &statement_, nullptr) != SQLITE_OK) {
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
    const Database& owner_;
    sqlite3_stmt* statement_ = nullptr;
    int bound_ = 0;
  };
};

CapsuleIndex::CapsuleIndex(const frt_capsules_v1& capsules, std::filesystem::path folder)
    : capsules_(capsules), folder_(std::move(folder)) {
  open_database();
}

CapsuleIndex::~CapsuleIndex() = default;

void CapsuleIndex::open_database() {
  const auto attempt = [&](const std::string& path) {
    database_ = std::make_unique<Database>(path);
    database_->run("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;");
    {
      Database::Statement version(*database_, "PRAGMA user_version");
      version.step();
      if (version.integer(0) != 0 && version.integer(0) != kSchema) {
        throw Error(FRT_ERR_FORMAT, path + ": of another version of this program");
      }
    }
    database_->run(kCreate);
    database_->run(("PRAGMA user_version = " + std::to_string(kSchema)).c_str());
    {
      Database::Statement check(*database_, "PRAGMA quick_check");
      if (!check.step() || check.text(0) != "ok") {
        throw Error(FRT_ERR_FORMAT, path + ": damaged");
      }
    }
    synchronise();
  };
  const std::string path = folder_ / kDatabase;
  std::error_code ignored;
  std::string problem;
  if (!std::filesystem::is_directory(folder_, ignored)) {
    return attempt(":memory:");
  }
  if (access(folder_.c_str(), W_OK) != 0) {
    problem = folder_.string() + " cannot be written to";
  }
  for (int tries = problem.empty() ? 2 : 0; tries > 0; --tries) {
    // SQLite would give a new file the mode that the umask leaves.
    const int descriptor = open(path.c_str(), O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_WRONLY, 0600);
    if (descriptor >= 0) close(descriptor);
    try {
      attempt(path);
      if (!problem.empty()) opening_.problem = "the index was made anew: " + problem;
      return;
    } catch (const Error& error) {
      opening_ = {};
      problem = error.what();
      database_.reset();
      if (error.status() != FRT_ERR_FORMAT) break;  // in use, or the disk is full
      for (const char* suffix : {"", "-wal", "-shm", "-journal"}) {
        std::filesystem::remove(path + suffix, ignored);
      }
    }
  }
  attempt(":memory:");
  opening_.problem = "the index is kept in memory: " + problem;
}

void CapsuleIndex::synchronise() {
  // Files are read side by side: it is hashing and parsing more than waiting.
  const auto examine_all = [&](const std::map<std::string, FileFacts>& files) {
    std::vector<std::string> pending;
    for (const auto& [name, facts] : files) pending.push_back(name);
    std::vector<IndexRow> rows(pending.size());
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
      for (std::size_t i = next++; i < pending.size(); i = next++) rows[i] = examine(pending[i]);
    };
    const std::size_t helpers = std::min<std::size_t>(
        {pending.size() / 16, std::max(1u, std::thread::hardware_concurrency()) - 1, 7});
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < helpers; ++i) threads.emplace_back(work);
    work();
    threads.clear();
    return rows;
  };
  std::error_code failure;
  std::vector<std::string> names;
  if (std::filesystem::is_directory(folder_, failure)) {
    names = list_capsules(capsules_, folder_);
  }
  std::map<std::string, FileFacts> files;
  for (const std::string& name : names) {
    if (const auto facts = facts_of(folder_ / (name + kSuffix))) files.emplace(name, *facts);
  }
  database_->run("BEGIN IMMEDIATE");
  try {
    std::vector<std::string> gone;
    {
      Database::Statement known(*database_,
                                "SELECT name, file_bytes, modified_ns, inode FROM capsules");
      while (known.step()) {
        const auto file = files.find(known.text(0));
        if (file == files.end()) {
          gone.push_back(known.text(0));
        } else if (file->second.bytes == known.number(1) &&
                   file->second.modified_ns == known.integer(2) &&
                   file->second.inode == known.number(3)) {
          files.erase(file);
          ++opening_.kept;
        }
      }
    }
    for (const std::string& name : gone) {
      Database::Statement(*database_, "DELETE FROM capsules WHERE name = ?").bind(name).step();
    }
    for (const IndexRow& row : examine_all(files)) {
      if (!row.name.empty()) put(row);
    }
    opening_.gone = gone.size();
    opening_.read = files.size();
  } catch (...) {
    sqlite3_exec(database_->handle, "ROLLBACK", nullptr, nullptr, nullptr);
    throw;
  }
  database_->run("COMMIT");
}

IndexRow CapsuleIndex::examine(const std::string& name) const {
  IndexRow row;
  const auto facts = facts_of(folder_ / (name + kSuffix));
  if (!facts) return row;
  row.name = name;
  row.file_bytes = facts->bytes;
  row.modified_ns = facts->modified_ns;
  row.inode = facts->inode;
  row.last_used = static_cast<uint64_t>(facts->modified_ns / 1'000'000'000);
  try {
    const CapsuleContent content =
        content_from_text(describe_capsule(capsules_, folder_, name).metadata);
    row.kind = capsule_kind_name(content.kind);
    row.parent = content.parent;
    row.owner = content.owner;
    row.model = content.model;
    row.created = content.created;
    row.boundary = content.boundary();
    row.cold_path = on_cold_path(content.path, content.chunk);
    row.digest = content.digest;
  } catch (const std::exception& problem) {
    row.problem = problem.what();
  }
  return row;
}

void CapsuleIndex::put(const IndexRow& row) {
  Database::Statement(*database_, std::string("INSERT OR REPLACE INTO capsules (") + kColumns +
                                      ") VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)")
      .bind(row.name)
      .bind(row.file_bytes)
      .bind(row.modified_ns)
      .bind(row.inode)
      .bind(row.problem)
      .bind(row.kind)
      .bind(row.parent)
      .bind(row.owner)
      .bind(row.model)
      .bind(row.created)
      .bind(row.boundary)
      .bind(uint64_t{row.cold_path})
      .bind(to_text(row.digest))
      .bind(row.last_used)
      .step();
}

std::vector<IndexRow> CapsuleIndex::rows() const {
  std::vector<IndexRow> rows;
  Database::Statement all(*database_,
                          std::string("SELECT ") + kColumns + " FROM capsules ORDER BY name");
  while (all.step()) {
    IndexRow row;
    row.name = all.text(0);
    row.file_bytes = all.number(1);
    row.modified_ns = all.integer(2);
    row.inode = all.number(3);
    row.problem = all.text(4);
    row.kind = all.text(5);
    row.parent = all.text(6);
    row.owner = all.text(7);
    row.model = all.text(8);
    row.created = all.number(9);
    row.boundary = all.number(10);
    row.cold_path = all.integer(11) != 0;
    row.digest = digest_from_text(all.text(12));
    row.last_used = all.number(13);
    row.pinned = facts_of(folder_ / (row.name + kPin)).has_value();
    rows.push_back(std::move(row));
  }
  return rows;
}

IndexRow CapsuleIndex::refresh(const std::string& name) {
  IndexRow row = examine(name);
  if (row.name.empty()) {
    Database::Statement(*database_, "DELETE FROM capsules WHERE name = ?").bind(name).step();
    return row;
  }
  row.pinned = facts_of(folder_ / (name + kPin)).has_value();
  put(row);
  return row;
}

void CapsuleIndex::touch(const std::string& name, uint64_t when) {
  Database::Statement(*database_, "UPDATE capsules SET last_used = ? WHERE name = ?")
      .bind(when)
      .bind(name)
      .step();
}

void CapsuleIndex::pin(const std::string& name, bool pinned) {
  if (!facts_of(folder_ / (name + kSuffix))) {
    throw Error(FRT_ERR_NOT_FOUND, "no capsule '" + name + "' in " + folder_.string());
  }
  const std::string path = folder_ / (name + kPin);
  const auto refuse = [&] {
    throw Error(FRT_ERR_IO, path + ": " + std::strerror(errno) +
                                "; pins are files, so the folder must be writable");
  };
  if (pinned) {
    const int descriptor = open(path.c_str(), O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_WRONLY, 0600);
    if (descriptor < 0) refuse();
    close(descriptor);
  } else if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    refuse();
  }
}

void CapsuleIndex::remove(const std::string& name) {
  remove_capsule(capsules_, folder_, name);
  unlink((folder_ / (name + kPin)).c_str());
  Database::Statement(*database_, "DELETE FROM capsules WHERE name = ?").bind(name).step();
}

}  // namespace frt::host
