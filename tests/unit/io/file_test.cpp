// SPDX-License-Identifier: Apache-2.0
#include <frt/io/file.hpp>

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <csignal>
#include <cstring>
#include <functional>

#include "test_support.hpp"

using namespace frt::io;
using namespace frt::io::test;
namespace fs = std::filesystem;

namespace {

struct Kind {
  const char* name;  // in the error
  std::function<void(const fs::path&)> make;
};

void make_socket(const fs::path& path) {
  const Descriptor open(::socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  REQUIRE(::bind(open.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
}

const Kind kKinds[] = {
    {"is a pipe", [](const fs::path& path) { REQUIRE(::mkfifo(path.c_str(), 0600) == 0); }},
    {"is a socket", make_socket},
    {"is a folder", [](const fs::path& path) { fs::create_directory(path); }},
    {"is a device", [](const fs::path& path) { fs::create_symlink("/dev/zero", path); }},
    {"Too many levels", [](const fs::path& path) { fs::create_symlink(path, path); }},
};

// Called by the system in the middle of a write that is too long: the rights of the new file then.
fs::path half_written_in;
unsigned half_written_rights = 0;
void look_at_half(int) {
  for (const auto& entry : fs::directory_iterator(half_written_in)) {
    if (entry.path().filename().string().starts_with("private.")) {
      half_written_rights = static_cast<unsigned>(entry.status().permissions());
    }
  }
}

std::string content_of(const fs::path& path) {
  return read_file(path, "test file", 1 << 20);
}

}  // namespace

TEST_CASE("what is no regular file is refused at once, for reading and for writing") {
  for (const Kind& kind : kKinds) {
    CAPTURE(kind.name);
    const Folder folder;
    const fs::path path = folder / "input";
    kind.make(path);
    CHECK_FAILS(open_file(path, "prompt"), "IO", kind.name, "the prompt", path.string());
    CHECK_FAILS(read_file(path, "prompt", 100), "IO", kind.name);
    CHECK_FAILS(create_file(path, "record"), "IO", kind.name, "the record");
    CHECK_FAILS(new_file(path, "pin"), "IO", "the pin", path.string());
    if (!fs::is_symlink(path)) {
      CHECK_FAILS(open_file(path, "prompt", Links::kRefuse), "IO", kind.name);
      CHECK_FAILS(write_file_atomically(path, "x"), "IO", kind.name, path.string());
    }
  }
}

TEST_CASE("a link in place of a file of our own is refused, and a link that a user names is not") {
  const Folder folder;
  write(folder / "file", "content");
  fs::create_symlink(folder / "file", folder / "link");
  CHECK(content_of(folder / "link") == "content");
  CHECK_FAILS(open_file(folder / "link", "index", Links::kRefuse), "IO", "the index",
              "is a symbolic link");
  fs::create_symlink(folder / "nowhere", folder / "loose");
  CHECK_FAILS(open_file(folder / "loose", "index"), "NOT_FOUND", "loose");
  CHECK_FAILS(open_file(folder / "loose", "index", Links::kRefuse), "IO", "is a symbolic link");
  CHECK(is_there(folder / "loose"));
  CHECK(is_there(folder / "file"));
  CHECK_FALSE(is_there(folder / "none"));
  CHECK_FALSE(is_there(folder / "file" / "below"));
}

TEST_CASE("a file is read up to its limit, whatever size it claims") {
  const Folder folder;
  for (const std::size_t size : {0, 1, 16383, 16384, 100000}) {
    const std::string content(size, 'x');
    write(folder / "file", content);
    CHECK(read_file(folder / "file", "test file", size) == content);
    if (size > 0) {
      CHECK_FAILS(read_file(folder / "file", "test file", size - 1), "OUT_OF_RANGE",
                  "larger than " + std::to_string(size - 1));
    }
  }
  CHECK(content_of("/proc/self/status").find("Pid:") != std::string::npos);  // claims size 0
  CHECK_FAILS(read_file("/proc/self/status", "test file", 10), "OUT_OF_RANGE");
  CHECK_FAILS(content_of(folder / "none"), "NOT_FOUND", "the test file", "none");
  CHECK_FAILS(content_of(folder / "file" / "below"), "NOT_FOUND");
}

TEST_CASE("an atomic write replaces the whole file, or the link, and leaves nothing else behind") {
  const Folder folder;
  write_file_atomically(folder / "file", "one");
  write_file_atomically(folder / "file", "two");
  CHECK(content_of(folder / "file") == "two");
  fs::create_symlink(folder / "file", folder / "link");
  write_file_atomically(folder / "link", "three");
  CHECK_FALSE(fs::is_symlink(folder / "link"));
  CHECK(content_of(folder / "file") == "two");
  CHECK_FAILS(write_file_atomically(folder / "none" / "file", "x"), "NOT_FOUND", "none");
  CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 2);
}

TEST_CASE("a file that only its owner may read stays so, and a new one follows the umask") {
  const Folder folder;
  const auto rights = [&](const char* name) {
    return static_cast<unsigned>(fs::status(folder / name).permissions());
  };
  write_file_atomically(folder / "private", "one");
  fs::permissions(folder / "private", fs::perms::owner_read | fs::perms::owner_write);
  write_file_atomically(folder / "private", "two");
  CHECK(rights("private") == 0600u);
  const mode_t mask = ::umask(077);
  write_file_atomically(folder / "new", "x");
  ::umask(mask);
  CHECK(rights("new") == 0600u);
  new_file(folder / "own", "pin");
  CHECK(rights("own") == 0600u);
  CHECK_FAILS(new_file(folder / "own", "pin"), "EXISTS", "own");
  CHECK_FAILS(new_file(folder / "none" / "pin", "pin"), "NOT_FOUND", "none");
}

TEST_CASE("a file made for writing starts empty") {
  const Folder folder;
  write(folder / "file", "old and long");
  {
    const Descriptor file = create_file(folder / "file", "record");
    REQUIRE(::write(file.get(), "new", 3) == 3);
  }
  CHECK(content_of(folder / "file") == "new");
  CHECK_FAILS(create_file(folder / "none" / "file", "record"), "NOT_FOUND", "none");
}

TEST_CASE("what replaces a private file is private from its first byte on") {
  const Folder folder;
  write_file_atomically(folder / "private", "one");
  fs::permissions(folder / "private", fs::perms::owner_read | fs::perms::owner_write);
  half_written_in = folder.path();
  half_written_rights = 0;
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  rlimit small = before;
  small.rlim_cur = 4096;
  const auto handler = std::signal(SIGXFSZ, look_at_half);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  std::string refusal;
  try {
    write_file_atomically(folder / "private", std::string(8192, 'x'));
  } catch (const frt::Error& error) {
    refusal = error.what();
  }
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, handler);
  CHECK(refusal.find("File too large") != std::string::npos);
  CHECK(half_written_rights == 0600u);
  CHECK(content_of(folder / "private") == "one");
  CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 1);
}

TEST_CASE("an atomic write leaves a link alone that leads to no regular file") {
  const Folder folder;
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  fs::create_directory(folder / "below");
  write(folder / "file", "content");
  const Descriptor open = open_file(folder / "file", "test file");
  const auto open_name = "/proc/self/fd/" + std::to_string(open.get());
  fs::create_symlink(folder / "pipe", folder / "to_pipe");
  fs::create_symlink("below", folder / "to_folder");
  fs::create_symlink("/dev/null", folder / "to_device");
  fs::create_symlink("loop", folder / "loop");
  fs::create_symlink(open_name, folder / "to_open_file");  // as /dev/stdout is
  fs::create_symlink("to_open_file", folder / "to_it");
  for (const char* name : {"to_pipe", "to_folder", "to_device", "loop", "to_open_file", "to_it"}) {
    CAPTURE(name);
    CHECK_FAILS(write_file_atomically(folder / name, "x"), "IO", name);
    CHECK(fs::is_symlink(folder / name));
  }
  CHECK(content_of(folder / "file") == "content");
  fs::create_symlink("nowhere", folder / "loose");
  write_file_atomically(folder / "loose", "new");
  CHECK(content_of(folder / "loose") == "new");
}
