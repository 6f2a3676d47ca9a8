// SPDX-License-Identifier: Apache-2.0
// frt.checksum/1. Tasks of 1 MiB; in each, eight independent words so that loads, not the chain of
// exclusive ors, set the pace.
#include <frt/ops/checks/checksum.hpp>

#include <algorithm>
#include <array>
#include <atomic>

#include "../device.hpp"
#include "registry.hpp"

namespace frt::cpu {
namespace {

constexpr uint64_t kTaskWords = (uint64_t{1} << 20) / sizeof(uint64_t);

uint64_t fold(const uint64_t* words, uint64_t count) noexcept {
  std::array<uint64_t, 8> lanes{};
  uint64_t i = 0;
  for (; i + lanes.size() <= count; i += lanes.size()) {
    for (uint64_t lane = 0; lane < lanes.size(); ++lane) lanes[lane] ^= words[i + lane];
  }
  uint64_t sum = 0;
  for (const uint64_t lane : lanes) sum ^= lane;
  for (; i < count; ++i) sum ^= words[i];
  return sum;
}

std::unique_ptr<Node> prepare_checksum(Device&, const frt_checksum_args& args) {
  check_checksum(Checks(FRT_OP_CHECKSUM), args);
  return make_node([args](Pool& pool, std::byte*) noexcept {
    const auto* words = static_cast<const uint64_t*>(args.x);
    const uint64_t count = args.bytes / sizeof(uint64_t);
    std::atomic<uint64_t> sum{0};
    pool.run(static_cast<int64_t>((count + kTaskWords - 1) / kTaskWords), [&](int64_t task, int) {
      const uint64_t begin = static_cast<uint64_t>(task) * kTaskWords;
      sum.fetch_xor(fold(words + begin, std::min(kTaskWords, count - begin)),
                    std::memory_order_relaxed);
    });
    *args.y = sum.load(std::memory_order_relaxed);
  });
}

}  // namespace

void register_checksum(KernelList& list) {
  list.add<frt_checksum_args>(FRT_OP_CHECKSUM, 0, {}, prepare_checksum);
}

}  // namespace frt::cpu
