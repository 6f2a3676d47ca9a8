// SPDX-License-Identifier: Apache-2.0
// Copies between contexts of real backends: two of the CPU, and the far device, whose memory the
// host cannot touch and which works only while somebody waits.
#include <doctest/doctest.h>

#include <cstring>
#include <frt/core/exec_table.hpp>
#include <frt/core/runtime.hpp>
#include <frt/exec.hpp>
#include <random>
#include <string>
#include <vector>

using namespace frt;

namespace {

using Bytes = std::vector<uint8_t>;

class Devices {
 public:
  Devices() : registry_(options()) {
    core::ManifestRequest request;
    request.environment = [](const std::string&) { return std::nullopt; };
    request.schemas = &registry_;
    core::RuntimeOptions all;
    all.all_devices = true;
    runtime_ = std::make_unique<core::Runtime>(
        core::parse_manifest("schema = 1\n[device.near]\nbackend = \"frt.cpu\"\n"
                             "[device.other]\nbackend = \"frt.cpu\"\n"
                             "[device.far]\nbackend = \"frt.test.far\"\n",
                             "/m.toml", request),
        registry_, services_, all);
  }
  Context context(const std::string& name) {
    return {core::exec_table(), runtime_->device(name).context};
  }

 private:
  static core::RegistryOptions options() {
    core::RegistryOptions made;
    made.plugin_folders = {FRT_PLUGIN_DIR, FRT_FAR_PLUGIN_DIR};
    made.use_environment = false;
    made.own_folder = FRT_PLUGIN_DIR;
    made.probing = core::Probing::kNever;
    return made;
  }

  core::Log log_{core::LogOptions{}};
  core::HostServices services_{log_};
  core::Registry registry_;
  std::unique_ptr<core::Runtime> runtime_;
};

// A buffer of random bytes, and what it should hold.
struct Side {
  Side(const Context& context, frt_space space, uint64_t bytes, std::mt19937& random)
      : stream(context.create_stream("s")),
        buffer(context.alloc(space, bytes, "b")),
        expected(bytes) {
    for (uint8_t& byte : expected) byte = static_cast<uint8_t>(random());
    buffer.upload(expected, stream);
  }
  Bytes now() const { return buffer.download<uint8_t>(buffer.bytes(), stream); }

  Stream stream;
  Buffer buffer;
  Bytes expected;
};

}  // namespace

TEST_CASE("ranges go from any device to any other and back as memcpy would bring them") {
  constexpr uint64_t kBytes = 20000;
  Devices devices;
  std::mt19937 random(41);
  const auto spaces = [](const std::string& name) {
    std::vector<frt_space> all = {FRT_SPACE_DEVICE, FRT_SPACE_HOST_PINNED, FRT_SPACE_HOST};
    if (name != "far") all.push_back(FRT_SPACE_SHARED);
    return all;
  };
  struct Way {
    const char *from, *to;
  };
  for (const Way& way : {Way{"near", "other"}, Way{"near", "far"}, Way{"far", "other"}}) {
    const std::string from = way.from, to = way.to;
    for (const frt_space from_space : spaces(from)) {
      for (const frt_space to_space : spaces(to)) {
        CAPTURE(from);
        CAPTURE(to);
        CAPTURE(from_space);
        CAPTURE(to_space);
        Side a(devices.context(from), from_space, kBytes, random);
        Side b(devices.context(to), to_space, kBytes, random);
        for (int i = 0; i < 6; ++i) {
          Side& source = i % 2 ? b : a;
          Side& target = i % 2 ? a : b;
          const uint64_t bytes = random() % kBytes + 1;
          const uint64_t at = random() % (kBytes - bytes + 1);
          const uint64_t source_at = random() % (kBytes - bytes + 1);
          copy_between(target.buffer, at, target.stream, source.buffer, source_at, source.stream,
                       bytes);
          std::memcpy(&target.expected[at], &source.expected[source_at], bytes);
          // Later work of the source does not reach what was copied.
          Recorder(source.stream).fill(source.buffer, 0, 100, 0xAB);
          std::fill_n(source.expected.begin(), 100, uint8_t{0xAB});
        }
        CHECK(a.now() == a.expected);
        CHECK(b.now() == b.expected);
      }
    }
  }
}

TEST_CASE("the far device has no shared memory, the processor has") {
  Devices devices;
  CHECK_THROWS_WITH_AS((void)devices.context("far").alloc(FRT_SPACE_SHARED, 64, "b"),
                       "buffer_alloc 'b': device 'far' has no memory that it shares with the "
                       "processor; use device memory, and copy",
                       Error);
  const Buffer shared = devices.context("near").alloc(FRT_SPACE_SHARED, 64, "b");
  const Stream stream = devices.context("near").create_stream("s");
  Recorder(stream).fill(shared, 0, 64, 0x5A);
  stream.sync();
  CHECK(Bytes(shared.pointer<uint8_t>(), shared.pointer<uint8_t>() + 64) == Bytes(64, 0x5A));
}
