// SPDX-License-Identifier: Apache-2.0
// frt.lock:
//
//     schema = 1
//     [[plugin]]
//     id = "acme.fast"
//     file = "acme.so"       # for people; the id decides
//     bytes = 123456
//     sha256 = "..."
#include <frt/core/digest.hpp>
#include <frt/core/plugin.hpp>
#include <frt/core/toml_text.hpp>
#include <frt/io/file.hpp>

#include "util/toml_reader.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>

namespace frt::core {

namespace {

constexpr uint64_t kLockLimit = uint64_t{1} << 20;

bool is_sha256(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

void read_entry(const TomlNode& node, LockFile& lock, Diagnostics& diagnostics) {
  LockEntry entry;
  if (node.kind != TomlNode::Kind::kTable) {
    diagnostics.error(FRT_ERR_FORMAT, node.position, "`plugin`: expected tables [[plugin]]");
    return;
  }
  for (const TomlMember& member : node.members) {
    const TomlNode& value = member.value;
    const bool text = value.kind == TomlNode::Kind::kString;
    if (member.key == "id" && text) {
      entry.id = value.text;
    } else if (member.key == "file" && text) {
      entry.file = value.text;
    } else if (member.key == "sha256" && text && is_sha256(value.text)) {
      entry.sha256 = value.text;
    } else if (member.key == "bytes" && value.kind == TomlNode::Kind::kInteger &&
               value.integer >= 0) {
      entry.bytes = static_cast<uint64_t>(value.integer);
    } else {
      diagnostics.error(FRT_ERR_FORMAT, member.key_position,
                        "`" + member.key + "`: not a key of a lock, or not its type");
      return;
    }
  }
  if (entry.id.empty() || entry.sha256.empty()) {
    diagnostics.error(FRT_ERR_FORMAT, node.position, "[[plugin]] needs `id` and `sha256`");
  } else if (lock.find(entry.id)) {
    diagnostics.error(FRT_ERR_FORMAT, node.position, "'" + entry.id + "' is there twice");
  } else {
    lock.entries.push_back(std::move(entry));
  }
}

}  // namespace

const LockEntry* LockFile::find(std::string_view id) const noexcept {
  for (const LockEntry& entry : entries) {
    if (entry.id == id) return &entry;
  }
  return nullptr;
}

LockFile read_lock(const std::filesystem::path& path) {
  const std::string text = io::read_file(path, "lock file", kLockLimit);
  const SourceText source(path.string(), text);
  Diagnostics diagnostics(&source);
  const TomlNode root = parse_toml(text, source, diagnostics);
  diagnostics.throw_if_errors();
  LockFile lock;
  lock.path = path;
  const TomlMember* schema = root.find("schema");
  if (!schema || schema->value.kind != TomlNode::Kind::kInteger || schema->value.integer != 1) {
    diagnostics.error(FRT_ERR_FORMAT, schema ? schema->value.position : SourcePosition{1, 1, 1},
                      "a lock starts with `schema = 1`; write it again with this host");
  }
  for (const TomlMember& member : root.members) {
    if (member.key == "schema") continue;
    if (member.key != "plugin" || member.value.kind != TomlNode::Kind::kArray) {
      diagnostics.error(FRT_ERR_FORMAT, member.key_position,
                        "unknown key `" + member.key + "`; a lock holds [[plugin]] tables");
      continue;
    }
    for (const TomlNode& node : member.value.items) read_entry(node, lock, diagnostics);
  }
  diagnostics.throw_if_errors();
  return lock;
}

LockEntry lock_entry(const std::filesystem::path& plugin_file) {
  const io::Descriptor file = io::open_file(plugin_file, "plugin");
  LockEntry entry;
  entry.id = read_image(file.get(), plugin_file.string()).card.id;
  entry.file = plugin_file.filename().string();
  entry.sha256 = sha256_file(file.get(), plugin_file.string());
  struct stat info {};
  if (::fstat(file.get(), &info) == 0) entry.bytes = static_cast<uint64_t>(info.st_size);
  return entry;
}

void write_lock(const std::filesystem::path& path, std::vector<LockEntry> entries) {
  std::sort(entries.begin(), entries.end(),
            [](const LockEntry& a, const LockEntry& b) { return a.id < b.id; });
  std::string text =
      "# The digests that plugin files must have. Written by the host; write it again after an "
      "update.\nschema = 1\n";
  for (const LockEntry& entry : entries) {
    text += fmt::format("\n[[plugin]]\nid = {}\nfile = {}\nbytes = {}\nsha256 = \"{}\"\n",
                        toml_quote(entry.id), toml_quote(entry.file), entry.bytes, entry.sha256);
  }
  io::write_file_atomically(path, text);
}

std::vector<std::string> verify_lock(const LockFile& lock,
                                     const std::vector<std::filesystem::path>& plugin_files) {
  std::vector<std::string> problems;
  for (const std::filesystem::path& path : plugin_files) {
    try {
      const LockEntry now = lock_entry(path);
      const LockEntry* locked = lock.find(now.id);
      if (!locked) {
        problems.push_back(now.id + ": '" + path.string() + "' is not in the lock");
      } else if (locked->sha256 != now.sha256) {
        problems.push_back(now.id + ": '" + path.string() + "' has digest " + now.sha256 +
                           ", the lock says " + locked->sha256);
      }
    } catch (const Error& error) {
      problems.push_back(error.what());
    }
  }
  return problems;
}

}  // namespace frt::core
