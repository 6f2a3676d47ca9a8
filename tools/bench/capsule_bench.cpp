// SPDX-License-Identifier: Apache-2.0
// Capsule verbs on an arena of the shape of Qwen3.6 27B (BF16 keys and values, draft head): time on
// the device, time of the call (submission), and bytes per second; then files.
//
//   capsule_bench BACKEND PLUGIN_FOLDER [folder for files]
//
// Each number is the median of several runs after one that is not counted. Device times are between
// two events around the verb, so they include what the stream does between submissions.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <frt/capsule.hpp>
#include <frt/core/capsules.hpp>
#include <frt/core/exec_table.hpp>
#include <frt/core/runtime.hpp>
#include <frt/core/state.hpp>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace frt;
using Clock = std::chrono::steady_clock;

constexpr int kRuns = 9;
constexpr uint64_t kMaxRows = 33024;
constexpr uint32_t kSlots = 3;

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

double seconds(const std::function<void()>& body) {
  const auto start = Clock::now();
  body();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Layout {
  std::vector<std::string> names;
  std::vector<frt_region> regions;

  Layout() {
    names.reserve(256);
    const auto add = [&](std::string name, uint32_t kind, uint64_t bytes, int64_t lag = 0) {
      names.push_back(std::move(name));
      regions.push_back({names.back().c_str(), kind, FRT_DTYPE_BF16, bytes,
                         kind == FRT_REGION_ROWS ? kMaxRows : 1, lag});
    };
    add("counts", FRT_REGION_FIXED, 248320 * 4);
    add("hidden", FRT_REGION_FIXED, 10240);
    for (int layer = 0; layer < 48; ++layer) {
      add("conv." + std::to_string(layer), FRT_REGION_FIXED, 3 * 10240 * 2);
      add("state." + std::to_string(layer), FRT_REGION_FIXED, 48 * 128 * 128 * 4);
    }
    for (int layer = 0; layer < 16; ++layer) {
      add("keys." + std::to_string(layer), FRT_REGION_ROWS, 4 * 256 * 2);
      add("values." + std::to_string(layer), FRT_REGION_ROWS, 4 * 256 * 2);
    }
    add("mtp.keys", FRT_REGION_ROWS, 4 * 256 * 2, 1);
    add("mtp.values", FRT_REGION_ROWS, 4 * 256 * 2, 1);
  }
};

class Bench {
 public:
  Bench(const Context& context, uint32_t page_rows)
      : stream_(context.create_stream("bench")),
        begin_(context.create_event(FRT_EVENT_TIMING)),
        end_(context.create_event(FRT_EVENT_TIMING)),
        page_rows_(page_rows) {
    const Layout layout;
    const frt_capsule_layout table{sizeof(table), static_cast<uint32_t>(layout.regions.size()),
                                   layout.regions.data(), page_rows, page_rows ? 160u : 0u};
    state_ = State(core::state_table(), context, table, kSlots, "state");
    capsules_ = Capsules(core::capsules_table(), context, state_.handle());
    state_.reserve(0, 0, kMaxRows, stream_);
    const std::vector<frt_fingerprint_field> fields = {{"model", "bench"}};
    capsules_.bind(fields);
    capsules_.fingerprint();
  }

  // One line: what, ms on the device, us of the call, GB/s of `bytes`.
  void row(
      const std::string& what, uint64_t bytes, const std::function<void()>& verb,
      const std::function<void()>& after = [] {}) {
    std::vector<double> device, call;
    for (int i = 0; i <= kRuns; ++i) {
      stream_.sync();
      begin_.record(stream_);
      const double submitted = seconds(verb);
      end_.record(stream_);
      stream_.sync();
      if (i > 0) {
        device.push_back(end_.elapsed_since(begin_));
        call.push_back(submitted * 1e6);
      }
      after();
    }
    std::printf("%s",
                fmt::format("{:<44} {:9.3f} ms {:9.1f} us {:9.1f} GB/s\n", what, median(device),
                            median(call), static_cast<double>(bytes) / median(device) / 1e6)
                    .c_str());
    std::fflush(stdout);
  }

  void verbs(uint64_t rows) {
    const std::string at = fmt::format(", {} rows, pages of {}", rows, page_rows_);
    for (const frt_space space : {FRT_SPACE_DEVICE, FRT_SPACE_HOST_PINNED}) {
      capsules_.reserve(space, rows, 1);
      Capsule capsule;
      const std::string name = space_name(space) + at;
      const auto snapshot = [&] { capsule = capsules_.snapshot(0, rows, space, stream_); };
      snapshot();
      const uint64_t bytes = capsule.bytes();
      capsule.reset();
      row("snapshot " + name, bytes, snapshot, [&] { capsule.reset(); });
      snapshot();
      row("restore " + name, bytes, [&] { capsule.restore(1, stream_); });
      const uint32_t slots[] = {1, 2};
      row("fork into 2 " + name, 2 * bytes, [&] { capsule.fork(slots, stream_); });
    }
    const uint32_t slots[] = {1};
    row("fork_slot" + at, 0, [&] { capsules_.fork_slot(0, rows, slots, stream_); });
  }

  void files(uint64_t rows, const std::string& folder) {
    const Capsule capsule = capsules_.snapshot(0, rows, FRT_SPACE_HOST_PINNED, stream_);
    capsule.sync();
    std::vector<double> save, load, verify, describe;
    for (int i = 0; i <= 3; ++i) {
      const double saved = seconds([&] { capsule.save(folder, "bench", ""); });
      const double loaded =
          seconds([&] { capsules_.load(folder, "bench", FRT_SPACE_HOST_PINNED); });
      const double verified =
          seconds([&] { verify_capsule(*core::capsules_table(), folder, "bench"); });
      const double described =
          seconds([&] { describe_capsule(*core::capsules_table(), folder, "bench"); });
      remove_capsule(*core::capsules_table(), folder, "bench");
      if (i == 0) continue;
      save.push_back(saved);
      load.push_back(loaded);
      verify.push_back(verified);
      describe.push_back(described);
    }
    const double gigabytes = static_cast<double>(capsule.bytes()) / 1e9;
    std::printf("%s",
                fmt::format("file of {:.3f} GB in {}, {} cores: save {:.2f} GB/s, load {:.2f} "
                            "GB/s, verify {:.2f} GB/s, describe {:.2f} ms\n",
                            gigabytes, folder, std::thread::hardware_concurrency(),
                            gigabytes / median(save), gigabytes / median(load),
                            gigabytes / median(verify), median(describe) * 1e3)
                    .c_str());
  }

 private:
  Stream stream_;
  Event begin_, end_;
  uint32_t page_rows_;
  State state_;
  Capsules capsules_;
};

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) {
    std::fprintf(stderr, "usage: capsule_bench BACKEND PLUGIN_FOLDER [folder for files]\n");
    return 2;
  }
  try {
    core::RegistryOptions options;
    options.plugin_folders = {arguments[2]};
    options.own_folder = arguments[2];
    options.use_environment = false;
    core::Registry registry(options);
    core::ManifestRequest request;
    request.environment = [](const std::string&) { return std::nullopt; };
    request.schemas = &registry;
    core::Log log{core::LogOptions{}};
    core::HostServices services(log);
    core::RuntimeOptions all;
    all.all_devices = true;
    const core::Runtime runtime(
        core::parse_manifest(
            std::string("schema = 1\n[device.d]\nbackend = \"") + arguments[1] + "\"\n", "/b.toml",
            request),
        registry, services, all);
    const Context context(core::exec_table(), runtime.device("d").context);
    for (const uint32_t page_rows : {0u, 256u}) {
      Bench bench(context, page_rows);
      for (const uint64_t rows : {uint64_t{8192}, uint64_t{8300}, uint64_t{32768}}) {
        bench.verbs(rows);
      }
      if (count > 3 && page_rows) bench.files(8192, arguments[3]);
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "capsule_bench: %s\n", error.what());
    return 1;
  }
}
