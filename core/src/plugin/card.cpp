// SPDX-License-Identifier: Apache-2.0
// The card: TOML text in the ELF section .frt.card (keys: frt/plugin.h). Strict, because a key that
// the host silently ignored would be a promise that nobody keeps. Only a card of a later minor
// version may have keys that this host does not know: such a version adds, and is used without.
#include <frt/core/plugin.hpp>
#include <frt/io/file.hpp>

#include "plugin/elf.hpp"
#include "util/toml_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace frt::core {

namespace {

const std::vector<std::string> kKeys = {"id",       "kind",     "abi",         "version", "targets",
                                        "portable", "requires", "model_types", "summary"};

bool is_id(std::string_view id) {
  const auto ok = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
  };
  return !id.empty() && id.size() <= 64 && std::all_of(id.begin(), id.end(), ok) &&
         id.front() != '.' && id.back() != '.';
}

class CardReader {
 public:
  CardReader(const TomlNode& root, Diagnostics& diagnostics)
      : root_(root), diagnostics_(diagnostics) {}

  std::string text(const char* key, bool required) {
    const TomlMember* member = root_.find(key);
    if (!member) {
      if (required) diagnostics_.error(FRT_ERR_FORMAT, {}, fmt::format("missing key `{}`", key));
      return {};
    }
    if (member->value.kind != TomlNode::Kind::kString || member->value.text.empty()) {
      wrong(*member, "text that is not empty");
      return {};
    }
    return member->value.text;
  }

  std::vector<std::string> list(const char* key) {
    std::vector<std::string> texts;
    const TomlMember* member = root_.find(key);
    if (!member) return texts;
    if (member->value.kind != TomlNode::Kind::kArray) {
      wrong(*member, "an array of texts");
      return texts;
    }
    for (const TomlNode& item : member->value.items) {
      if (item.kind != TomlNode::Kind::kString || item.text.empty()) {
        wrong(*member, "an array of texts");
        return {};
      }
      texts.push_back(item.text);
    }
    return texts;
  }

  void wrong(const TomlMember& member, const char* expected) {
    diagnostics_.error(FRT_ERR_FORMAT, member.value.position,
                       fmt::format("`{}`: expected {}", member.key, expected));
  }

  void refuse_unknown_keys() {
    for (const TomlMember& member : root_.members) {
      if (is_free_key(member.key)) continue;
      if (std::find(kKeys.begin(), kKeys.end(), member.key) != kKeys.end()) continue;
      Diagnostic& d = diagnostics_.error(FRT_ERR_FORMAT, member.key_position,
                                         "unknown key `" + member.key + "`");
      d.hint = did_you_mean(member.key, kKeys);
    }
  }

 private:
  const TomlNode& root_;
  Diagnostics& diagnostics_;
};

bool parse_abi(std::string_view text, Card& card) {
  const std::size_t dot = text.find('.');
  if (dot == std::string_view::npos) return false;
  const auto number = [](std::string_view digits, uint32_t& out) {
    const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
    return code == std::errc() && end == digits.data() + digits.size() && out < 65536;
  };
  return number(text.substr(0, dot), card.abi_major) &&
         number(text.substr(dot + 1), card.abi_minor);
}

const char* sanitizer_name(uint32_t sanitizer) {
  switch (sanitizer) {
    case FRT_SANITIZER_NONE:
      return "no sanitizer";
    case FRT_SANITIZER_ADDRESS:
      return "AddressSanitizer";
    case FRT_SANITIZER_THREAD:
      return "ThreadSanitizer";
    default:
      return "an unknown sanitizer";
  }
}

}  // namespace

const char* plugin_kind_name(uint32_t kind) noexcept {
  switch (kind) {
    case FRT_PLUGIN_BACKEND:
      return "backend";
    case FRT_PLUGIN_MODEL:
      return "model";
    case FRT_PLUGIN_ENVIRONMENT:
      return "environment";
    default:
      return "?";
  }
}

Card parse_card(std::string_view text, const std::string& name, AbiVersion host) {
  const SourceText source(name + "[card]", text);
  Diagnostics diagnostics(&source);
  const TomlNode root = parse_toml(text, source, diagnostics);
  diagnostics.throw_if_errors();
  CardReader reader(root, diagnostics);
  Card card;
  card.id = reader.text("id", true);
  const std::string kind = reader.text("kind", true);
  const std::string abi = reader.text("abi", true);
  card.version = reader.text("version", true);
  card.targets = reader.list("targets");
  card.portable = reader.list("portable");
  card.requirements = reader.list("requires");
  card.model_types = reader.list("model_types");
  card.summary = reader.text("summary", false);
  if (!std::ranges::all_of(card.portable, is_portable_target)) {
    reader.wrong(*root.find("portable"), "names that end in a number, \"sm_90\", or \"*\"");
  }
  if (!card.id.empty() && !is_id(card.id)) {
    reader.wrong(*root.find("id"), "lower-case letters, digits, '.', '_' and '-', at most 64");
  }
  if (kind == "backend") {
    card.kind = FRT_PLUGIN_BACKEND;
  } else if (kind == "model") {
    card.kind = FRT_PLUGIN_MODEL;
  } else if (kind == "environment") {
    card.kind = FRT_PLUGIN_ENVIRONMENT;
  } else if (!kind.empty()) {
    reader.wrong(*root.find("kind"), "\"backend\", \"model\" or \"environment\"");
  }
  const bool abi_read = !abi.empty() && parse_abi(abi, card);
  const bool other =
      abi_read && oldest_abi(card.abi_major, card.abi_minor) != oldest_abi(host.major, host.minor);
  if (!other && card.abi_minor <= host.minor) reader.refuse_unknown_keys();
  if (!card.model_types.empty() && card.kind != 0 && card.kind != FRT_PLUGIN_MODEL) {
    const bool backend = card.kind == FRT_PLUGIN_BACKEND;
    reader.wrong(*root.find("model_types"),
                 backend ? "none in the card of a backend" : "none in the card of an environment");
  }
  if (!abi.empty() && !abi_read) {
    reader.wrong(*root.find("abi"), "\"major.minor\"");
  } else if (other) {
    diagnostics.error(FRT_ERR_ABI, root.find("abi")->value.position,
                      fmt::format("built for ABI {}, but this host speaks {}.{}; get a build for "
                                  "it, or a host for the plugin's version",
                                  abi, host.major, host.minor));
  }
  diagnostics.throw_if_errors();
  return card;
}

PluginImage read_image(const std::filesystem::path& path) {
  const io::Descriptor file = io::open_file(path, "plugin");
  return read_image(file.get(), path.string());
}

PluginImage read_image(int descriptor, const std::string& name) {
  const ElfFacts facts = read_elf(descriptor, name);
  if (!facts.has_card) {
    throw Error(FRT_ERR_UNSUPPORTED, "'" + name +
                                         "' has no section " FRT_CARD_SECTION
                                         ": it is a library, not a plugin of this runtime");
  }
  PluginImage image;
  image.card = parse_card(facts.card, name);
  image.sanitizer = facts.sanitizer;
  return image;
}

std::string sanitizer_refusal(uint32_t sanitizer) {
  if (sanitizer == FRT_BUILD_SANITIZER) return {};
  return fmt::format(
      "it was built with {} and this host with {}; build both the same way "
      "(-DFRT_SANITIZE={} for the plugin)",
      sanitizer_name(sanitizer), sanitizer_name(FRT_BUILD_SANITIZER),
      FRT_BUILD_SANITIZER == FRT_SANITIZER_ADDRESS  ? "address"
      : FRT_BUILD_SANITIZER == FRT_SANITIZER_THREAD ? "thread"
                                                    : "");
}

}  // namespace frt::core
