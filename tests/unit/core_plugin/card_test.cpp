// SPDX-License-Identifier: Apache-2.0
// Cards: reading them from ELF files without loading, refusing what is no plugin for this machine,
// and ranking.
#include <elf.h>
#include <sys/resource.h>

#include <cstring>
#include <frt/core/plugin.hpp>

#include "helpers.hpp"

using namespace frt::core;
using test::error_of;
using test::has;

namespace {

constexpr const char* kText =
    "id = \"acme.fast\"\nkind = \"backend\"\nabi = \"0.9\"\nversion = \"0.3\"\n"
    "targets = [\"xpu_90\"]\nportable = [\"xpu_90\"]\nrequires = [\"driver>=5\"]\n"
    "summary = \"fast\"\n";

// The test model with some bytes replaced.
template <class Patch>
std::filesystem::path patched(const test::Folder& folder, Patch&& patch) {
  std::string bytes = test::read(test::kGoodModel);
  patch(bytes);
  return folder.write("patched.so", bytes);
}

Elf64_Ehdr header_of(const std::string& bytes) {
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  return header;
}

void put_header(std::string& bytes, const Elf64_Ehdr& header) {
  std::memcpy(bytes.data(), &header, sizeof(header));
}

Card card_for(std::vector<std::string> targets, std::vector<std::string> portable = {}) {
  Card card;
  card.targets = std::move(targets);
  card.portable = std::move(portable);
  return card;
}

}  // namespace

TEST_CASE("a complete card is read key by key") {
  const Card card = parse_card(kText, "acme.so");
  CHECK(card.id == "acme.fast");
  CHECK(card.kind == FRT_PLUGIN_BACKEND);
  CHECK(card.abi_major == 0);
  CHECK(card.abi_minor == 9);
  CHECK(card.version == "0.3");
  CHECK(card.targets == std::vector<std::string>{"xpu_90"});
  CHECK(card.portable == std::vector<std::string>{"xpu_90"});
  CHECK(card.requirements == std::vector<std::string>{"driver>=5"});
  CHECK(card.summary == "fast");
}

TEST_CASE("the card of a model names the checkpoints that it takes, that of a backend does not") {
  const std::string keys = "id = \"acme.lm\"\nabi = \"0.9\"\nversion = \"1\"\n";
  const std::string types = "model_types = [\"acme\", \"acme_moe\"]\n";
  CHECK(parse_card(keys + "kind = \"model\"\n" + types, "acme.so").model_types ==
        std::vector<std::string>{"acme", "acme_moe"});
  CHECK(parse_card(kText, "acme.so").model_types.empty());
  const frt::Error error =
      error_of([&] { parse_card(keys + "kind = \"backend\"\n" + types, "acme.so"); });
  CHECK(has(
      error_of([&] { parse_card(keys + "kind = \"environment\"\n" + types, "acme.so"); }).what(),
      "`model_types`: expected none in the card of an environment"));
  CHECK(parse_card(keys + "kind = \"environment\"\n", "acme.so").kind == FRT_PLUGIN_ENVIRONMENT);
  CHECK(has(error.what(), "`model_types`: expected none in the card of a backend"));
}

TEST_CASE("a card with several mistakes names them all at once") {
  const frt::Error error = error_of([] {
    parse_card(
        "id = \"Acme Fast\"\nkind = \"driver\"\nabi = \"one\"\ntargts = [\"x\"]\nportable = [1]\n",
        "acme.so");
  });
  CHECK(error.status() == FRT_ERR_FORMAT);
  const std::string text = error.what();
  CHECK(has(text, "`id`: expected lower-case"));
  CHECK(has(text, "`kind`: expected \"backend\", \"model\" or \"environment\""));
  CHECK(has(text, "`abi`: expected \"major.minor\""));
  CHECK(has(text, "missing key `version`"));
  CHECK(has(text, "did you mean `targets`?"));
  CHECK(has(text, "`portable`: expected an array of texts"));
}

TEST_CASE("before 1.0 a minor version works with itself alone, from 1.0 on with every other") {
  CHECK(frt::oldest_abi(0, 9) == "0.9");
  CHECK(frt::oldest_abi(0, 10) == "0.10");
  CHECK(frt::oldest_abi(1, 0) == "1.0");
  CHECK(frt::oldest_abi(1, 12) == "1.0");
  CHECK(frt::oldest_abi(2, 1) == "2.0");
}

TEST_CASE("a card of an ABI that does not work with the host's is refused as such") {
  const auto with_abi = [](const std::string& abi) {
    return "id = \"a\"\nkind = \"model\"\nversion = \"1\"\nabi = \"" + abi + "\"\n";
  };
  struct Pair {
    const char* card;
    frt::core::AbiVersion host;
  };
  for (const Pair& pair :
       {Pair{"2.0", {1, 0}}, {"0.8", {0, 9}}, {"0.10", {0, 9}}, {"1.0", {0, 9}}, {"0.9", {1, 0}}}) {
    CAPTURE(pair.card);
    // Only that is said, whatever its keys are.
    const frt::Error error =
        error_of([&] { parse_card(with_abi(pair.card) + "novelty = 1\n", "a.so", pair.host); });
    CHECK(error.status() == FRT_ERR_ABI);
    CHECK(has(error.what(), "built for ABI " + std::string(pair.card) + ", but this host speaks " +
                                std::to_string(pair.host.major) + "." +
                                std::to_string(pair.host.minor)));
  }
  CHECK(parse_card(with_abi("0.9"), "a.so", {0, 9}).abi_minor == 9);
}

TEST_CASE(
    "from 1.0 on a card of a later minor version is welcome with keys that nobody knows yet") {
  const auto with_abi = [](const std::string& abi) {
    return "id = \"a\"\nkind = \"model\"\nversion = \"1\"\nabi = \"" + abi + "\"\nnovelty = 1\n";
  };
  CHECK(parse_card(with_abi("1.9"), "a.so", {1, 3}).abi_minor == 9);
  for (const char* abi : {"1.0", "1.3"}) {
    CHECK(error_of([&] { parse_card(with_abi(abi), "a.so", {1, 3}); }).status() == FRT_ERR_FORMAT);
  }
}

TEST_CASE("the card of a real plugin is read without loading it") {
  const PluginImage image = read_image(test::kGoodModel);
  CHECK(image.card.id == "test.model");
  CHECK(image.card.version == "1.2.3");
  CHECK(image.sanitizer == FRT_BUILD_SANITIZER);
  // A constructor that aborts does no harm here.
  CHECK(read_image(test::broken("aborts")).card.id == "test.broken");
}

TEST_CASE("files for other machines are refused with the name of the machine") {
  const test::Folder folder;
  const auto status_and_text = [&](auto&& change) {
    const auto path = patched(folder, [&](std::string& bytes) {
      Elf64_Ehdr header = header_of(bytes);
      change(header);
      put_header(bytes, header);
    });
    return error_of([&] { read_image(path); });
  };
  frt::Error error = status_and_text(
      [](Elf64_Ehdr& h) { h.e_machine = h.e_machine == EM_AARCH64 ? EM_X86_64 : EM_AARCH64; });
  CHECK(error.status() == FRT_ERR_MISMATCH);
  CHECK(has(error.what(), "was built for"));
  CHECK(has(error.what(), "get the build for it"));
  error = status_and_text([](Elf64_Ehdr& h) { h.e_ident[EI_CLASS] = ELFCLASS32; });
  CHECK(error.status() == FRT_ERR_MISMATCH);
  CHECK(has(error.what(), "32-bit"));
  error = status_and_text([](Elf64_Ehdr& h) { h.e_ident[EI_DATA] = ELFDATA2MSB; });
  CHECK(error.status() == FRT_ERR_MISMATCH);
  CHECK(has(error.what(), "big-endian"));
  error = status_and_text([](Elf64_Ehdr& h) { h.e_ident[EI_OSABI] = ELFOSABI_FREEBSD; });
  CHECK(error.status() == FRT_ERR_MISMATCH);
  CHECK(has(error.what(), "another operating system"));
  error = status_and_text([](Elf64_Ehdr& h) { h.e_type = ET_REL; });
  CHECK(error.status() == FRT_ERR_FORMAT);
  CHECK(has(error.what(), "no shared object"));
}

TEST_CASE("a truncated plugin is refused wherever it is cut") {
  const std::string whole = test::read(test::kGoodModel);
  const test::Folder folder;
  // The section table is at the end of the file: every shorter file lacks a part of it.
  for (const std::size_t keep : {std::size_t{0}, std::size_t{3}, std::size_t{4}, std::size_t{63},
                                 std::size_t{64}, whole.size() / 2, whole.size() - 1}) {
    CAPTURE(keep);
    const auto path = folder.write("cut.so", whole.substr(0, keep));
    const frt::Error error = error_of([&] { read_image(path); });
    CHECK(error.status() == FRT_ERR_FORMAT);
    CHECK(has(error.what(), "cut.so"));
  }
}

TEST_CASE("tables that point outside the file or lie about their size are refused") {
  const test::Folder folder;
  const auto refuse = [&](auto&& change) {
    const auto path = patched(folder, [&](std::string& bytes) {
      Elf64_Ehdr header = header_of(bytes);
      change(header, bytes);
      put_header(bytes, header);
    });
    const frt::Error error = error_of([&] { read_image(path); });
    CHECK(error.status() == FRT_ERR_FORMAT);
  };
  refuse([](Elf64_Ehdr& h, std::string&) { h.e_shoff = ~uint64_t{0} - 8; });
  refuse([](Elf64_Ehdr& h, std::string&) { h.e_shoff = 0; });
  refuse([](Elf64_Ehdr& h, std::string&) { h.e_shnum = 65535; });
  refuse([](Elf64_Ehdr& h, std::string&) { h.e_shentsize = 1; });
  refuse([](Elf64_Ehdr& h, std::string&) { h.e_shstrndx = 65535; });
  // Every section claims the largest size there is.
  refuse([](Elf64_Ehdr& h, std::string& bytes) {
    for (uint64_t i = 0; i < h.e_shnum; ++i) {
      const uint64_t at = h.e_shoff + i * sizeof(Elf64_Shdr) + offsetof(Elf64_Shdr, sh_size);
      const uint64_t size = ~uint64_t{0};
      std::memcpy(bytes.data() + at, &size, sizeof(size));
    }
  });
  // Every section lies behind the end.
  refuse([](Elf64_Ehdr& h, std::string& bytes) {
    for (uint64_t i = 0; i < h.e_shnum; ++i) {
      const uint64_t at = h.e_shoff + i * sizeof(Elf64_Shdr) + offsetof(Elf64_Shdr, sh_offset);
      const uint64_t offset = bytes.size();
      std::memcpy(bytes.data() + at, &offset, sizeof(offset));
    }
  });
}

// A shared object without code: a card, and tables of `symbols` imports that share one name.
std::string elf_of_symbols(uint16_t tables, uint64_t symbols, uint64_t name_bytes) {
  const std::string section_names("\0.frt.card\0.dynsym\0.dynstr\0", 27);
  const std::string card = "id = \"h.bomb\"\nkind = \"model\"\nabi = \"0.9\"\nversion = \"1\"\n";
  std::string bytes(sizeof(Elf64_Ehdr), '\0');
  std::vector<Elf64_Shdr> sections(1);
  const auto add = [&](uint32_t name, uint32_t type, const std::string& content) {
    Elf64_Shdr section{};
    section.sh_name = name;
    section.sh_type = type;
    section.sh_offset = bytes.size();
    section.sh_size = content.size();
    sections.push_back(section);
    bytes += content;
  };
  add(0, SHT_STRTAB, section_names);
  add(1, SHT_PROGBITS, card);
  add(19, SHT_STRTAB, std::string(name_bytes, 'a') + '\0');
  add(11, SHT_DYNSYM, std::string(symbols * sizeof(Elf64_Sym), '\0'));
  sections.back().sh_link = 3;
  sections.back().sh_entsize = sizeof(Elf64_Sym);
  for (uint16_t i = 1; i < tables; ++i) sections.push_back(sections.back());
  Elf64_Ehdr header = header_of(test::read(test::kGoodModel));
  header.e_shoff = bytes.size();
  header.e_shnum = static_cast<uint16_t>(sections.size());
  header.e_shstrndx = 1;
  put_header(bytes, header);
  return bytes.append(reinterpret_cast<const char*>(sections.data()),
                      sections.size() * sizeof(Elf64_Shdr));
}

TEST_CASE("a thousand symbols that share one name of 1 MiB cost no thousand MiB") {
  const auto peak = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;  // KiB
  };
  const test::Folder folder;
  const auto path = folder.write("bomb.so", elf_of_symbols(1, 1000, uint64_t{1} << 20));
  const auto before = peak();
  CHECK(read_image(path).card.id == "h.bomb");
  CHECK(peak() - before < 256 << 10);
}

TEST_CASE("a second table of symbols is refused: each costs the time to read it") {
  const test::Folder folder;
  const auto path = folder.write("tables.so", elf_of_symbols(2, 1, 8));
  const frt::Error error = error_of([&] { read_image(path); });
  CHECK(error.status() == FRT_ERR_FORMAT);
  CHECK(has(error.what(), "two tables of dynamic symbols"));
}

TEST_CASE("what is no plugin is told apart: missing, a folder, text, a library without a card") {
  const test::Folder folder;
  CHECK(error_of([&] { read_image(folder.path() / "none.so"); }).status() == FRT_ERR_NOT_FOUND);
  CHECK(error_of([&] { read_image(folder.path()); }).status() == FRT_ERR_IO);
  const auto text =
      folder.write("text.so", "hello, I am not a shared object, but I am long enough");
  CHECK(has(error_of([&] { read_image(text); }).what(), "ELF mark"));
  // The card's section is renamed, as if it had never been written.
  const auto path = patched(folder, [](std::string& bytes) {
    const std::size_t at = bytes.find(".frt.card");
    REQUIRE(at != std::string::npos);
    bytes[at + 1] = 'x';
  });
  const frt::Error error = error_of([&] { read_image(path); });
  CHECK(error.status() == FRT_ERR_UNSUPPORTED);
  CHECK(has(error.what(), "not a plugin"));
}

TEST_CASE("a plugin of another sanitizer is refused with the option to build it with") {
  CHECK(sanitizer_refusal(FRT_BUILD_SANITIZER).empty());
  const uint32_t other =
      FRT_BUILD_SANITIZER == FRT_SANITIZER_ADDRESS ? FRT_SANITIZER_THREAD : FRT_SANITIZER_ADDRESS;
  CHECK(has(sanitizer_refusal(other), "-DFRT_SANITIZE="));
}

TEST_CASE("ranking prefers machine code, then portable code, then code for any device") {
  const auto fit = [](const Card& card, const char* device) { return rank_card(card, device).fit; };
  CHECK(fit(card_for({"xpu_90"}), "xpu_90") == Fit::kExact);
  CHECK(fit(card_for({"xpu_80", "xpu_90"}), "xpu_90") == Fit::kExact);
  CHECK(fit(card_for({"odd"}), "odd") == Fit::kExact);
  CHECK(fit(card_for({}), "xpu_90") == Fit::kAny);
  CHECK(Fit::kExact < Fit::kPortable);
  CHECK(Fit::kPortable < Fit::kAny);
  CHECK(Fit::kAny < Fit::kNone);
  CHECK(has(rank_card(card_for({"xpu_80"}), "xpu_90").reason, "for xpu_80, the device is xpu_90"));
}

TEST_CASE("no vendor's rule makes the code of one architecture fit another") {
  const auto fit = [](const Card& card, const char* device) { return rank_card(card, device).fit; };
  CHECK(fit(card_for({"xpu_80"}), "xpu_89") == Fit::kNone);
  CHECK(fit(card_for({"xpu_90a"}), "xpu_90") == Fit::kNone);
  CHECK(fit(card_for({"gfx1100"}), "gfx1101") == Fit::kNone);
  CHECK(fit(card_for({"gfx90a"}), "gfx90c") == Fit::kNone);
  CHECK(fit(card_for({"x86-64-v3"}), "x86-64-v4") == Fit::kNone);
}

TEST_CASE("portable code fits the device that the card names, and newer ones of the same letters") {
  const auto fit = [](std::vector<std::string> portable, const char* device) {
    return rank_card(card_for({"xpu_10"}, std::move(portable)), device).fit;
  };
  CHECK(fit({"xpu_90"}, "xpu_90") == Fit::kPortable);
  CHECK(fit({"xpu_90"}, "xpu_103") == Fit::kPortable);
  CHECK(fit({"xpu_90"}, "xpu_89") == Fit::kNone);
  CHECK(fit({"xpu_90"}, "ypu_90") == Fit::kNone);
  CHECK(fit({"xpu_90"}, "xpu_100a") == Fit::kNone);  // no number at its end
  CHECK(fit({"gfx11"}, "gfx90a") == Fit::kNone);
  CHECK(fit({"*"}, "whatever") == Fit::kPortable);
  CHECK(fit({"xpu_90"}, "xpu_99999999999999999999") == Fit::kNone);
}

TEST_CASE("a card whose portable code is for no series of devices is refused") {
  for (const char* name : {"xpu", "xpu_90a", "90", "", "xpu_99999999999"}) {
    const std::string text = std::string("id = \"a\"\nkind = \"backend\"\nabi = \"0.9\"\n") +
                             "version = \"1\"\nportable = [\"" + name + "\"]\n";
    CHECK(has(error_of([&] { parse_card(text, "a.so"); }).what(), "`portable`: expected"));
  }
}

TEST_CASE("among cards with portable code the newest ranks first") {
  const auto rank = [](const Card& card) { return rank_card(card, "xpu_103"); };
  const Ranking old = rank(card_for({"xpu_80"}, {"xpu_80"}));
  const Ranking newer = rank(card_for({"xpu_90"}, {"xpu_90"}));
  CHECK(newer.fit == old.fit);
  CHECK(newer.better_than(old));
  CHECK_FALSE(old.better_than(newer));
  CHECK_FALSE(old.better_than(old));
  CHECK(old.better_than(rank(card_for({}, {"*"}))));
  CHECK(rank(card_for({"xpu_103"})).better_than(rank(card_for({}, {"xpu_103"}))));
  // One card may offer several.
  CHECK(rank(card_for({}, {"xpu_80", "xpu_100", "xpu_90"})).newest == 100);
}
