// SPDX-License-Identifier: Apache-2.0
// A checkpoint that others truncate, overwrite or replace while it is read: never a signal, never
// bytes of two versions. FRT_CHECKPOINT_SEEDS=N runs more moments.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <frt/models/safetensors.hpp>
#include <frt/models/safetensors_writer.hpp>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <random>
#include <thread>

#include "test_support.hpp"

using namespace frt::models;
using namespace frt::models::test;

namespace {

namespace fs = std::filesystem;
using std::chrono::microseconds;

constexpr std::size_t kTensors = 24;
constexpr std::size_t kTensorBytes = std::size_t{64} << 10;

int seeds() {
  const char* text = std::getenv("FRT_CHECKPOINT_SEEDS");
  return text ? std::atoi(text) : 25;
}

// Every byte of every tensor is `value`.
void make(const fs::path& path, char value) {
  SafetensorsWriter writer(path);
  for (std::size_t i = 0; i < kTensors; ++i) {
    writer.declare("t" + std::to_string(i), FRT_DTYPE_U8, {kTensorBytes});
  }
  const std::string data(kTensorBytes, value);
  for (std::size_t i = 0; i < kTensors; ++i) {
    writer.write("t" + std::to_string(i), std::as_bytes(std::span(data)));
  }
  writer.finish();
}

enum class Change { kTruncate, kOverwrite, kOverwriteKeepingTimes, kReplace, kRemove };
constexpr Change kChanges[] = {Change::kTruncate, Change::kOverwrite,
                               Change::kOverwriteKeepingTimes, Change::kReplace, Change::kRemove};

// `next` is a whole checkpoint of other values.
void apply(Change change, const fs::path& path, const fs::path& next, std::mt19937& random) {
  const auto size = static_cast<std::size_t>(fs::file_size(path));
  switch (change) {
    case Change::kTruncate:
      fs::resize_file(path, random() % size);
      return;
    case Change::kOverwrite:
    case Change::kOverwriteKeepingTimes: {  // as `cp -p` and `rsync --inplace -t` do it
      const std::string content = read_file(next);
      const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
      CHECK(::pwrite(file, content.data(), content.size(), 0) ==
            static_cast<ssize_t>(content.size()));
      if (change == Change::kOverwriteKeepingTimes) {
        const timespec times[2] = {{1, 0}, {1, 0}};
        ::futimens(file, times);
      }
      ::close(file);
      return;
    }
    case Change::kReplace:
      fs::rename(next, path);
      return;
    case Change::kRemove:
      fs::remove(path);
      return;
  }
}

}  // namespace

TEST_CASE("a checkpoint that changes while it is read is an error, or is read as it was") {
  int refused = 0, whole = 0;
  for (int seed = 0; seed < seeds(); ++seed) {
    CAPTURE(seed);
    const Change change = kChanges[seed % 5];
    std::mt19937 random(static_cast<unsigned>(seed));
    const ScratchFolder folder;
    const fs::path path = folder / "model.safetensors", next = folder / "next";
    make(path, 'a');
    make(next, 'b');
    const auto moment = microseconds(random() % 2000);
    // A single write() stamps the file when it begins: one that is half done when the file is
    // opened is older than the version that was opened.
    const bool before = change == Change::kOverwrite || change == Change::kOverwriteKeepingTimes;
    std::optional<Checkpoint> opened;
    if (before) opened = Checkpoint::open(path);
    std::thread other([&] {
      std::this_thread::sleep_for(moment);
      apply(change, path, next, random);
    });
    char first = '\0';
    const std::string error = error_of([&] {
      const Checkpoint checkpoint = opened ? *opened : Checkpoint::open(path);
      bool same = true;
      for (int round = 0; round < 2; ++round) {
        for (const TensorView& tensor : checkpoint.tensors()) {
          for (const std::byte byte : tensor.read()) {
            const char value = std::to_integer<char>(byte);
            if (first == '\0') first = value;
            same = same && value == first;
          }
        }
      }
      CHECK(same);
      checkpoint.require_unchanged();
    });
    other.join();
    if (error == "nothing") {
      ++whole;
    } else {
      ++refused;
      CHECK(contains(error, path.string()));
    }
  }
  MESSAGE(refused << " refused, " << whole << " read whole");
}

TEST_CASE("every way to change an open checkpoint is refused before it counts as loaded") {
  for (const Change change : kChanges) {
    CAPTURE(static_cast<int>(change));
    std::mt19937 random(1);
    const ScratchFolder folder;
    const fs::path path = folder / "model.safetensors", next = folder / "next";
    make(path, 'a');
    make(next, 'b');
    const Checkpoint checkpoint = Checkpoint::open(path);
    checkpoint.require_unchanged();
    apply(change, path, next, random);
    const std::string error = error_of([&] { checkpoint.require_unchanged(); });
    const bool kept = change == Change::kReplace || change == Change::kRemove;
    CHECK(contains(error, kept ? "was replaced or removed" : "was changed while it was in use"));
    // What is renamed over or removed can be read on; its digest is that of what was read.
    if (kept) {
      CHECK(checkpoint.get("t3").read() == std::vector<std::byte>(kTensorBytes, std::byte{'a'}));
      CHECK(checkpoint.digests().front().second.size() == 64);
    } else {
      CHECK_FAILS(checkpoint.get("t0").read(), "IO", path.string());
      CHECK_FAILS(checkpoint.digests(), "IO", path.string());
    }
  }
}

TEST_CASE("one shard that changes spoils the set, though the others were read whole") {
  const ScratchFolder folder;
  make(folder / "one.safetensors", 'a');
  SafetensorsWriter writer(folder / "two.safetensors");
  writer.declare("other", FRT_DTYPE_U8, {1});
  writer.write("other", std::as_bytes(std::span("x", 1)));
  writer.finish();
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  fs::resize_file(folder / "two.safetensors", 3);
  CHECK_NOTHROW(checkpoint.get("t1").read());
  CHECK_FAILS(checkpoint.require_unchanged(), "IO", "two.safetensors");
}
