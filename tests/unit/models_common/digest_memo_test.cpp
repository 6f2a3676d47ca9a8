// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>

#include <frt/models/digest_memo.hpp>
#include <frt/models/sha256.hpp>

#include "test_support.hpp"

namespace frt::models::test {
namespace {

namespace fs = std::filesystem;

struct OpenFile {
  explicit OpenFile(const fs::path& path)
      : descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~OpenFile() { ::close(descriptor); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int descriptor;
};

std::string digest(const DigestMemo& memo, const fs::path& path) {
  const OpenFile file(path);
  return memo.sha256(file.descriptor, path);
}

fs::path only_entry(const fs::path& folder) {
  fs::path found;
  for (const auto& entry : fs::directory_iterator(folder)) found = entry.path();
  CHECK(std::distance(fs::directory_iterator(folder), {}) == 1);
  return found;
}

}  // namespace

TEST_CASE("a digest is remembered as long as the file is the same, and computed again when not") {
  const ScratchFolder folder;
  const DigestMemo memo{folder / "memo", 1, 0};
  write_file(folder / "weights", "abc");
  const std::string abc = sha256_text("abc");
  CHECK(digest(memo, folder / "weights") == abc);
  CHECK(digest(memo, folder / "weights") == abc);
  const fs::path entry = only_entry(folder / "memo");

  // That it is remembered shows when it lies.
  std::string text = read_file(entry);
  const std::string lie(64, 'f');
  text.replace(text.size() - 65, 64, lie);
  write_file(entry, text);
  CHECK(digest(memo, folder / "weights") == lie);

  SUBCASE("another content of the same length") {
    write_file(folder / "weights", "abd");
    CHECK(digest(memo, folder / "weights") == sha256_text("abd"));
  }
  SUBCASE("another content, the old time of modification") {
    struct stat before {};
    REQUIRE(::stat((folder / "weights").c_str(), &before) == 0);
    write_file(folder / "weights", "abd");
    const timespec times[] = {before.st_atim, before.st_mtim};
    REQUIRE(::utimensat(AT_FDCWD, (folder / "weights").c_str(), times, 0) == 0);
    CHECK(digest(memo, folder / "weights") == sha256_text("abd"));
  }
  SUBCASE("another file under the same name") {
    write_file(folder / "other", "abe");
    fs::rename(folder / "other", folder / "weights");
    CHECK(digest(memo, folder / "weights") == sha256_text("abe"));
  }
  SUBCASE("a damaged entry") {
    for (const std::string& damaged : {std::string(), text.substr(0, text.size() - 1), text + "x",
                                       "frt-digest/2" + text.substr(12)}) {
      write_file(entry, damaged);
      CHECK(digest(memo, folder / "weights") == abc);
    }
  }
  SUBCASE("the same content under another name is another entry") {
    fs::copy_file(folder / "weights", folder / "copy");
    CHECK(digest(memo, folder / "copy") == abc);
  }
  SUBCASE("a folder that others may write to is not used") {
    fs::permissions(folder / "memo", fs::perms(0777));
    CHECK(digest(memo, folder / "weights") == abc);
  }
  SUBCASE("a folder that cannot be made costs only time") {
    write_file(folder / "file", "");
    CHECK(digest(DigestMemo{folder / "file" / "memo", 1, 0}, folder / "weights") == abc);
    CHECK(digest(DigestMemo{{}, 1, 0}, folder / "weights") == abc);
  }
}

TEST_CASE("small files and files that were changed just now are not remembered") {
  const ScratchFolder folder;
  write_file(folder / "weights", "abc");
  CHECK(digest(DigestMemo{folder / "small", 4, 0}, folder / "weights") == sha256_text("abc"));
  CHECK_FALSE(fs::exists(folder / "small"));
  CHECK(digest(DigestMemo{folder / "fresh", 1}, folder / "weights") == sha256_text("abc"));
  CHECK(fs::is_empty(folder / "fresh"));
  struct stat info {};
  REQUIRE(::stat((folder / "fresh").c_str(), &info) == 0);
  CHECK((info.st_mode & 07777) == 0700);
}

TEST_CASE("the memo lies where the user's other derived files lie") {
  const char* old = std::getenv("XDG_CACHE_HOME");
  const std::string before = old ? old : "";
  ::setenv("XDG_CACHE_HOME", "/somewhere", 1);
  CHECK(DigestMemo::of_user().folder == "/somewhere/frt/digests");
  ::setenv("XDG_CACHE_HOME", "relative", 1);
  CHECK(DigestMemo::of_user().folder != "relative/frt/digests");
  if (old) {
    ::setenv("XDG_CACHE_HOME", before.c_str(), 1);
  } else {
    ::unsetenv("XDG_CACHE_HOME");
  }
}

}  // namespace frt::models::test
