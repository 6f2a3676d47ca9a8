// SPDX-License-Identifier: Apache-2.0
// Digests against published values, fingerprints.
#include <fcntl.h>

#include <frt/core/digest.hpp>

#include "file_digest.hpp"
#include "helpers.hpp"

using namespace frt::core;
using test::has;

TEST_CASE("SHA-256 agrees with the values of FIPS 180") {
  CHECK(sha256_hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  Sha256 pieces;
  pieces.update("a", 1);
  pieces.update("bc", 2);
  CHECK(pieces.finish() == sha256_hex("abc"));
}

TEST_CASE("the digest of a file is the digest of its bytes, also over several blocks") {
  const test::Folder folder;
  const std::string content(std::size_t{3} * 1024 * 1024 + 17, 'x');
  CHECK(test::file_digest(folder.write("f", content)) == sha256_hex(content));
  CHECK(test::file_digest(folder.write("e", "")) == sha256_hex(""));
  const frt::io::Descriptor open(::open(folder.path().c_str(), O_RDONLY | O_CLOEXEC));
  CHECK(test::error_of([&] { sha256_file(open.get(), "a folder"); }).status() == FRT_ERR_IO);
}

TEST_CASE("a fingerprint depends on names, values, order and borders of fields") {
  const auto hex = [](std::vector<Fingerprint::Field> fields) {
    return Fingerprint(std::move(fields)).hex();
  };
  const std::string base = hex({{"a", "b"}, {"c", "d"}});
  CHECK(base.size() == 64);
  CHECK(base == hex({{"a", "b"}, {"c", "d"}}));
  CHECK(base != hex({{"c", "d"}, {"a", "b"}}));
  CHECK(base != hex({{"ab", ""}, {"c", "d"}}));
  CHECK(base != hex({{"a", "bc"}, {"", "d"}}));
  CHECK(base != hex({{"a", "b"}}));
  CHECK(hex({}) != hex({{"", ""}}));
}

TEST_CASE("the bytes of a fingerprint are the documented ones") {
  const auto number = [](uint64_t value) {
    std::string bytes;
    for (int i = 0; i < 8; ++i) bytes += static_cast<char>(value >> (8 * i) & 255);
    return bytes;
  };
  const std::string bytes =
      number(17) + "frt-fingerprint/1" + number(1) + number(5) + "chunk" + number(2) + "64";
  Fingerprint fingerprint;
  fingerprint.add("chunk", "64");
  CHECK(fingerprint.hex() == sha256_hex(bytes));
}

TEST_CASE("fields of builds are told from those of the identity by their names") {
  using Part = Fingerprint::Part;
  const Fingerprint all({{"backend", "b"}, {"build.backend.file", "aa"}, {"model.build.x", "1"}});
  CHECK(all.only(Part::kIdentity).fields() ==
        std::vector<Fingerprint::Field>{{"backend", "b"}, {"model.build.x", "1"}});
  CHECK(all.only(Part::kBuild).fields() ==
        std::vector<Fingerprint::Field>{{"build.backend.file", "aa"}});
}

TEST_CASE("a mismatch names every field that differs") {
  Fingerprint here({{"chunk", "64"}, {"config", "abc"}, {"new", "1"}});
  const Fingerprint stored({{"chunk", "128"}, {"config", "abc"}, {"old", "2"}});
  CHECK(Fingerprint::difference(here, here).empty());
  const std::string text = Fingerprint::difference(here, stored);
  CHECK(has(text, "chunk: here 64, stored 128"));
  CHECK(has(text, "new: here 1, not stored"));
  CHECK(has(text, "old: stored 2, not here"));
  CHECK(text.find("config") == std::string::npos);
  CHECK(Fingerprint::difference(Fingerprint({{"a", "1"}, {"b", "2"}}),
                                Fingerprint({{"b", "2"}, {"a", "1"}})) ==
        "the order of the fields");
  CHECK(test::error_of([&] { here.add("chunk", "1"); }).status() == FRT_ERR_EXISTS);
}
