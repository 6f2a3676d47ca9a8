// SPDX-License-Identifier: Apache-2.0
// A bounds-checked reader of ELF64: header, section headers, section names, the card, and whether
// the dynamic symbols import a sanitizer's runtime.
//
// Nothing of the file is trusted. `Bytes::read` is the only way to the file; it refuses a range
// that leaves it, without overflow. Only the tables are read, not the file: a plugin of 300 MB
// costs as little as a small one. Limits: 65535 sections, 64 KiB of card, 1 MiB of section names,
// one table of symbols, 64 MiB of symbols and of their names. Names are compared where they are
// and never copied, so a million entries that share one long name take no memory.
#include "plugin/elf.hpp"

#include <frt/plugin.h>
#include <frt/error.hpp>

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

namespace frt::core {

namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#else
#error "name this processor's ELF machine here"
#endif
static_assert(std::endian::native == std::endian::little, "the reader takes bytes as they are");

constexpr uint64_t kCardLimit = uint64_t{64} << 10;
constexpr uint64_t kNamesLimit = uint64_t{1} << 20;
constexpr uint64_t kSymbolsLimit = uint64_t{64} << 20;

std::string machine_name(uint16_t machine) {
  switch (machine) {
    case EM_X86_64:
      return "x86-64";
    case EM_AARCH64:
      return "aarch64";
    case EM_386:
      return "x86 (32 bit)";
    case EM_ARM:
      return "arm (32 bit)";
    case EM_RISCV:
      return "riscv";
    case EM_PPC64:
      return "ppc64";
    default:
      return "machine " + std::to_string(machine);
  }
}

class Bytes {
 public:
  Bytes(int descriptor, const std::string& name) : descriptor_(descriptor), name_(name) {
    struct stat info {};
    if (::fstat(descriptor, &info) != 0) {
      throw Error(FRT_ERR_IO, "cannot examine '" + name + "': " + std::strerror(errno));
    }
    size_ = static_cast<uint64_t>(info.st_size);
  }

  uint64_t size() const { return size_; }
  Error broken(const std::string& what) const {
    return Error(FRT_ERR_FORMAT, "'" + name_ + "' is not a usable shared object: " + what);
  }

  void read(void* target, uint64_t offset, uint64_t bytes, const char* what) const {
    if (offset > size_ || bytes > size_ - offset) {
      throw broken(std::string(what) + " lies at " + std::to_string(offset) + ", " +
                   std::to_string(bytes) + " bytes, but the file has " + std::to_string(size_) +
                   "; the file is truncated or damaged: copy it again");
    }
    auto* out = static_cast<unsigned char*>(target);
    while (bytes > 0) {
      const ssize_t got = ::pread(descriptor_, out, bytes, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        throw Error(FRT_ERR_IO, "cannot read '" + name_ +
                                    "': " + (got < 0 ? std::strerror(errno) : "it became shorter"));
      }
      out += got;
      offset += static_cast<uint64_t>(got);
      bytes -= static_cast<uint64_t>(got);
    }
  }

  std::string text(const Elf64_Shdr& section, uint64_t limit, const char* what) const {
    if (section.sh_type == SHT_NOBITS) return {};
    if (section.sh_size > limit) {
      throw broken(std::string(what) + " has " + std::to_string(section.sh_size) +
                   " bytes; at most " + std::to_string(limit) + " are sensible");
    }
    if (section.sh_offset > size_ || section.sh_size > size_ - section.sh_offset) {
      // Throws before memory is taken for a size that is a lie.
      read(nullptr, section.sh_offset, section.sh_size, what);
    }
    std::string content(section.sh_size, '\0');
    read(content.data(), section.sh_offset, section.sh_size, what);
    return content;
  }

 private:
  int descriptor_;
  const std::string& name_;
  uint64_t size_ = 0;
};

// True if the zero-terminated name at `offset` of a string table is `wanted`.
bool has_name(const std::string& table, uint64_t offset, std::string_view wanted) {
  return offset < table.size() && wanted.size() < table.size() - offset &&
         table.compare(offset, wanted.size(), wanted) == 0 && table[offset + wanted.size()] == '\0';
}

Elf64_Ehdr read_header(const Bytes& bytes, const std::string& name) {
  Elf64_Ehdr header{};
  unsigned char magic[SELFMAG] = {};
  if (bytes.size() >= SELFMAG) bytes.read(magic, 0, SELFMAG, "the ELF mark");
  if (std::memcmp(magic, ELFMAG, SELFMAG) != 0) {
    throw bytes.broken("it does not start with the ELF mark");
  }
  bytes.read(&header, 0, sizeof(header), "the ELF header");
  if (header.e_ident[EI_CLASS] != ELFCLASS64) {
    throw Error(FRT_ERR_MISMATCH, "'" + name + "' is a 32-bit library; this host needs 64 bit");
  }
  if (header.e_ident[EI_DATA] != ELFDATA2LSB) {
    throw Error(FRT_ERR_MISMATCH, "'" + name + "' is big-endian; this host is little-endian");
  }
  if (header.e_ident[EI_OSABI] != ELFOSABI_SYSV && header.e_ident[EI_OSABI] != ELFOSABI_GNU) {
    throw Error(FRT_ERR_MISMATCH, "'" + name + "' was built for another operating system (ELF OS " +
                                      std::to_string(header.e_ident[EI_OSABI]) +
                                      "); this host needs Linux");
  }
  if (header.e_machine != kMachine) {
    throw Error(FRT_ERR_MISMATCH, "'" + name + "' was built for " + machine_name(header.e_machine) +
                                      "; this machine is " + machine_name(kMachine) +
                                      ": get the build for it");
  }
  if (header.e_type != ET_DYN) {
    throw bytes.broken("it is no shared object (ELF type " + std::to_string(header.e_type) + ")");
  }
  return header;
}

std::vector<Elf64_Shdr> read_sections(const Bytes& bytes, const Elf64_Ehdr& header) {
  if (header.e_shoff == 0 || header.e_shnum == 0) {
    throw bytes.broken("it has no section table (was it stripped of it?)");
  }
  if (header.e_shentsize != sizeof(Elf64_Shdr)) throw bytes.broken("odd section table");
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  bytes.read(sections.data(), header.e_shoff, sections.size() * sizeof(Elf64_Shdr),
             "the section table");
  return sections;
}

// Sanitizer runtimes leave these symbols to be found at load.
uint32_t read_sanitizer(const Bytes& bytes, const std::vector<Elf64_Shdr>& sections,
                        const Elf64_Shdr& table) {
  if (table.sh_entsize != sizeof(Elf64_Sym) || table.sh_link >= sections.size()) {
    throw bytes.broken("odd symbol table");
  }
  const std::string symbols = bytes.text(table, kSymbolsLimit, "the symbol table");
  const std::string names = bytes.text(sections[table.sh_link], kSymbolsLimit, "the symbol names");
  for (std::size_t at = 0; at + sizeof(Elf64_Sym) <= symbols.size(); at += sizeof(Elf64_Sym)) {
    Elf64_Sym symbol{};
    std::memcpy(&symbol, symbols.data() + at, sizeof(symbol));
    if (symbol.st_shndx != SHN_UNDEF) continue;
    if (has_name(names, symbol.st_name, "__asan_init")) return FRT_SANITIZER_ADDRESS;
    if (has_name(names, symbol.st_name, "__tsan_init")) return FRT_SANITIZER_THREAD;
  }
  return FRT_SANITIZER_NONE;
}

}  // namespace

ElfFacts read_elf(int descriptor, const std::string& name) {
  const Bytes bytes(descriptor, name);
  const Elf64_Ehdr header = read_header(bytes, name);
  const std::vector<Elf64_Shdr> sections = read_sections(bytes, header);
  if (header.e_shstrndx >= sections.size()) throw bytes.broken("no section names");
  const std::string names = bytes.text(sections[header.e_shstrndx], kNamesLimit, "section names");
  ElfFacts facts;
  bool has_symbols = false;
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type == SHT_DYNSYM) {
      if (has_symbols) throw bytes.broken("it has two tables of dynamic symbols");
      facts.sanitizer = read_sanitizer(bytes, sections, section);
      has_symbols = true;
    }
    if (!has_name(names, section.sh_name, FRT_CARD_SECTION)) continue;
    if (facts.has_card) throw bytes.broken("it has two card sections");
    facts.card = bytes.text(section, kCardLimit, "the card");
    facts.card.erase(facts.card.find_last_not_of('\0') + 1);
    facts.has_card = true;
  }
  return facts;
}

}  // namespace frt::core
