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
#include <system_error>

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

AccessLog::AccessLog(const std::filesystem::path& path) : file_(open_log(path)) {}

void AccessLog::write(const char* event, const nlohmann::ordered_json& record) noexcept {
  if (file_.get() < 0) return;
  try {
    using std::chrono::milliseconds;
    const auto now = std::chrono::time_point_cast<milliseconds>(std::chrono::system_clock::now());
    const auto part = now.time_since_epoch() % std::chrono::seconds(1);
    nlohmann::ordered_json line;
    line["time"] =
        fmt::format("{:%FT%T}.{:03}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(now)),
                    std::chrono::duration_cast<milliseconds>(part).count());
    line["event"] = event;
    line.update(record);
    const std::string text = io::json_text(line, {.bad = io::BadUtf8::kReplace}) + "\n";
    const std::lock_guard lock(mutex_);
    (void)!::write(file_.get(), text.data(), text.size());  // one call: lines do not mix
  } catch (...) {
    return;
  }
}

}  // namespace frt::host
