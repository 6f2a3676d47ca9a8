// SPDX-License-Identifier: Apache-2.0
#include "net/access_log.hpp"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <frt/error.hpp>
#include <frt/io/json_text.hpp>
#include <frt/io/retry.hpp>
#include <new>
#include <system_error>
#include <utility>

namespace frt::host {
namespace {

io::Descriptor open_log(const std::filesystem::path& path) {
  if (path.empty()) return io::Descriptor();
  io::Descriptor file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK,
                             S_IRUSR | S_IWUSR));
  struct stat status {};
  if (file.get() < 0 || fstat(file.get(), &status) != 0) {
    throw Error(FRT_ERR_IO, "request_log " + path.string() + ": " +
                                std::generic_category().message(errno) +
                                "; choose a file in a folder that exists");
  }
  if (!S_ISREG(status.st_mode)) {
    throw Error(FRT_ERR_IO, "request_log " + path.string() + " is no regular file");
  }
  return file;
}

}  // namespace

AccessLog::AccessLog(const std::filesystem::path& path, std::size_t most_waiting)
    : path_(path), most_waiting_(most_waiting), file_(open_log(path)) {
  if (file_.get() >= 0) thread_ = std::thread([this] { run(); });
}

AccessLog::~AccessLog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void AccessLog::write(const char* event, nlohmann::ordered_json record) noexcept {
  if (path_.empty()) return;
  try {
    const auto now = std::chrono::system_clock::now();
    const std::lock_guard lock(mutex_);
    if (waiting_.size() < most_waiting_) {
      waiting_.push_back({now, event, std::move(record)});
      changed_.notify_one();
      return;
    }
  } catch (const std::bad_alloc&) {
    // Dropped, as where too many wait.
  }
  dropped_.fetch_add(1, std::memory_order_relaxed);
}

void AccessLog::reopen() {
  if (path_.empty()) return;
  io::Descriptor file = open_log(path_);
  const std::lock_guard lock(file_mutex_);
  file_ = std::move(file);
}

void AccessLog::run() {
  for (;;) {
    std::vector<Record> records;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      records.swap(waiting_);
    }
    write_lines(records);
  }
}

void AccessLog::write_lines(std::vector<Record>& records) noexcept {
  for (const Record& record : records) {
    if (!write_line(record)) dropped_.fetch_add(1, std::memory_order_relaxed);
  }
}

bool AccessLog::write_line(const Record& record) noexcept {
  try {
    using std::chrono::milliseconds;
    const auto time = std::chrono::time_point_cast<milliseconds>(record.time);
    const auto part = time.time_since_epoch() % std::chrono::seconds(1);
    nlohmann::ordered_json line;
    line["time"] =
        fmt::format("{:%FT%T}.{:03}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(time)),
                    std::chrono::duration_cast<milliseconds>(part).count());
    line["event"] = record.event;
    line.update(record.members);
    const std::string text = io::json_text(line, {.bad = io::BadUtf8::kReplace}) + "\n";
    const std::lock_guard lock(file_mutex_);
    const ssize_t written =
        io::retried([&] { return ::write(file_.get(), text.data(), text.size()); });
    return written == static_cast<ssize_t>(text.size());  // one call: lines do not mix
  } catch (...) {
    return false;
  }
}

}  // namespace frt::host
