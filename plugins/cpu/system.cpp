// SPDX-License-Identifier: Apache-2.0
// Sources: proc(5) for /proc/cpuinfo and /proc/meminfo; the kernel's cgroup-v2.rst for cpu.max,
// memory.max, memory.current and memory.stat; cgroup v1's cpu.cfs_quota_us and
// memory.limit_in_bytes, whose "no limit" is a huge number.
#include "system.hpp"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

namespace frt::cpu {
namespace {

// The whole file, or nothing. These files are at most a few pages.
std::optional<std::string> read_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

std::optional<uint64_t> read_number(const std::string& path) {
  const auto text = read_file(path);
  if (!text || text->empty() || (*text)[0] < '0' || (*text)[0] > '9') return std::nullopt;
  return std::strtoull(text->c_str(), nullptr, 10);
}

// The number behind `key` at the start of a line, as in "MemTotal:   16384 kB".
std::optional<uint64_t> line_number(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    return std::strtoull(line.c_str() + key.size(), nullptr, 10);
  }
  return std::nullopt;
}

// Folders of this process's control group, innermost first: limits of all ancestors count.
// In a container the group is usually mounted as the root, where the path of /proc/self/cgroup
// does not exist; the root itself is always last.
std::vector<std::string> group_folders(const std::string& controller) {
  const std::string unified = "/sys/fs/cgroup";
  const std::string legacy = unified + "/" + controller;
  std::vector<std::string> folders;
  const auto text = read_file("/proc/self/cgroup");
  std::istringstream lines(text.value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = "," + line.substr(first + 1, second - first - 1) + ",";
    std::string root;
    if (names == ",,") root = unified;
    if (names.find("," + controller + ",") != std::string::npos) root = legacy;
    if (root.empty()) continue;
    for (std::string path = line.substr(second + 1); path.size() > 1;) {
      folders.push_back(root + path);
      path.erase(path.rfind('/'));
    }
  }
  folders.push_back(unified);
  folders.push_back(legacy);
  return folders;
}

#if !defined(__x86_64__)
std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\0' || text.back() == '\n')) text.pop_back();
  return text;
}
#endif

}  // namespace

std::string processor_name() {
  const std::string text = read_file("/proc/cpuinfo").value_or("");
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.compare(0, 10, "model name") != 0) continue;
    const std::size_t colon = line.find(':');
    if (colon != std::string::npos && colon + 2 < line.size()) return line.substr(colon + 2);
  }
#if !defined(__x86_64__)
  if (const auto model = read_file("/sys/firmware/devicetree/base/model")) return trimmed(*model);
#endif
  return "CPU";
}

CoreCount available_cores() {
  // The mask may be wider than cpu_set_t: grow until the kernel is content.
  for (int bits = CPU_SETSIZE; bits <= CPU_SETSIZE * 64; bits *= 2) {
    cpu_set_t* mask = CPU_ALLOC(static_cast<std::size_t>(bits));
    if (!mask) break;
    const std::size_t size = CPU_ALLOC_SIZE(static_cast<std::size_t>(bits));
    const int result = sched_getaffinity(0, size, mask);
    const int reason = errno;
    std::set<std::pair<uint64_t, uint64_t>> cores;
    int threads = 0;
    for (int cpu = 0; result == 0 && cpu < bits; ++cpu) {
      if (!CPU_ISSET_S(static_cast<std::size_t>(cpu), size, mask)) continue;
      const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
      const auto package = read_number(folder + "physical_package_id");
      const auto core = read_number(folder + "core_id");
      // Unknown topology: every CPU counts as a core of its own.
      cores.insert(core ? std::pair(package.value_or(0), *core)
                        : std::pair(kUnlimited, static_cast<uint64_t>(cpu)));
      ++threads;
    }
    CPU_FREE(mask);
    if (result == 0) return {std::max(1, static_cast<int>(cores.size())), std::max(1, threads)};
    if (reason != EINVAL) break;
  }
  return {1, 1};
}

std::optional<double> cpu_quota() {
  std::optional<double> least;
  const auto take = [&](double quota, double period) {
    if (quota > 0 && period > 0) least = std::min(least.value_or(quota / period), quota / period);
  };
  for (const std::string& folder : group_folders("cpu")) {
    if (const auto text = read_file(folder + "/cpu.max")) {
      std::istringstream words(*text);
      double quota = 0;
      double period = 0;
      if (words >> quota >> period) take(quota, period);  // "max 100000" fails: no limit
    }
    const auto quota = read_number(folder + "/cpu.cfs_quota_us");  // -1: no limit
    const auto period = read_number(folder + "/cpu.cfs_period_us");
    if (quota && period) take(static_cast<double>(*quota), static_cast<double>(*period));
  }
  return least;
}

MachineMemory machine_memory() {
  const std::string text = read_file("/proc/meminfo").value_or("");
  const uint64_t total = line_number(text, "MemTotal:").value_or(0) * 1024;
  const uint64_t available = line_number(text, "MemAvailable:").value_or(0) * 1024;
  const uint64_t swap = line_number(text, "SwapFree:").value_or(0) * 1024;
  if (total == 0) return {kUnlimited, kUnlimited};
  return {total, available + swap};
}

GroupMemory group_memory() {
  GroupMemory least{kUnlimited, 0};
  const auto take = [&](std::optional<uint64_t> limit, std::optional<uint64_t> used,
                        const std::string& stat, const std::string& prefix) {
    if (!limit || !used) return;
    // The page cache, e.g. of weights that were read, gives way: nothing here maps large files.
    const std::string lines = read_file(stat).value_or("");
    const uint64_t reclaimable = line_number(lines, prefix + "inactive_file ").value_or(0) +
                                 line_number(lines, prefix + "active_file ").value_or(0);
    const uint64_t held = *used - std::min(*used, reclaimable);
    const uint64_t room = *limit - std::min(*limit, held);
    if (room < least.limit - std::min(least.limit, least.used)) least = {*limit, held};
  };
  for (const std::string& folder : group_folders("memory")) {
    const std::string stat = folder + "/memory.stat";
    take(read_number(folder + "/memory.max"), read_number(folder + "/memory.current"), stat, "");
    take(read_number(folder + "/memory.limit_in_bytes"),
         read_number(folder + "/memory.usage_in_bytes"), stat, "total_");
  }
  return least;
}

void name_thread(const std::string& name) noexcept {
  char text[16] = {};
  name.copy(text, sizeof(text) - 1);
  pthread_setname_np(pthread_self(), text);
}

void adjust_thread_nice(int nice) noexcept {
  // On Linux a nice value belongs to a thread, and "process 0" is the calling thread.
  const int now = getpriority(PRIO_PROCESS, 0);
  if (nice < 0 ? nice < now : nice > now) setpriority(PRIO_PROCESS, 0, nice);
}

}  // namespace frt::cpu
