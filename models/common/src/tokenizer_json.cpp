// SPDX-License-Identifier: Apache-2.0
// From the files to Tokenizer::Data. Everything a file asks for is looked at: a key that is not
// known here is refused, because ignoring it could change ids without a word.
#include <frt/error.hpp>
#include <frt/io/file.hpp>
#include <frt/io/json.hpp>
#include <frt/io/utf8.hpp>
#include <frt/models/json.hpp>
#include <frt/models/tokenizer.hpp>

#include <algorithm>
#include <charconv>
#include <initializer_list>

#include "byte_level.hpp"
#include "normalize.hpp"
#include "text.hpp"
#include "tokenizer_data.hpp"
#include "tokenizer_file.hpp"

namespace frt::models {
namespace {

// Bytes of an added token: each place of a text costs the longest one. Real ones have below 64.
constexpr std::size_t kLongestAddedToken = 256;
constexpr std::size_t kMostPrefixTokens = 16;
constexpr std::size_t kMostSteps = 16;  // of pre-tokenisation: encoding recurses over them

// What ByteLevel splits by with use_regex: the expression of GPT-2.
constexpr std::string_view kByteLevelRegex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

[[noreturn]] void malformed(const std::string& where, const std::string& what) {
  throw Error(FRT_ERR_FORMAT, where + ": " + what);
}

[[noreturn]] void unsupported(const std::string& where, const std::string& what) {
  throw Error(FRT_ERR_UNSUPPORTED, where + ": " + what + " is not supported");
}

// The member, or null (a JSON null counts as absent).
const Json* member(const Json& object, std::string_view key) {
  const auto at = object.find(key);
  return at == object.end() || at->is_null() ? nullptr : &*at;
}

void require_object(const Json& value, const std::string& where) {
  if (!value.is_object()) malformed(where, "expected an object");
}

void check_keys(const Json& object, const std::string& where,
                std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : object.get_ref<const Json::object_t&>()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    unsupported(where, "the key " + io::quote(key));
  }
}

bool flag(const Json& object, std::string_view key, const std::string& where, bool otherwise) {
  const Json* value = member(object, key);
  if (!value) return otherwise;
  if (!value->is_boolean()) malformed(where + "." + std::string(key), "expected true or false");
  return value->get<bool>();
}

const std::string& text(const Json& object, std::string_view key, const std::string& where) {
  const Json* value = member(object, key);
  if (!value || !value->is_string()) {
    malformed(where + "." + std::string(key), "expected a string");
  }
  return value->get_ref<const std::string&>();
}

const Json::array_t& list(const Json& object, std::string_view key, const std::string& where) {
  const Json* value = member(object, key);
  if (!value || !value->is_array()) {
    malformed(where + "." + std::string(key), "expected an array");
  }
  return value->get_ref<const Json::array_t&>();
}

// Calls visit(component, where) for a component and, if it is a Sequence, for its parts.
template <class Visit>
void each_component(const Json& component, const std::string& where, const char* parts,
                    const Visit& visit) {
  require_object(component, where);
  if (text(component, "type", where) != "Sequence") return visit(component, where);
  check_keys(component, where, {"type", parts});
  std::size_t index = 0;
  for (const Json& part : list(component, parts, where)) {
    const std::string inner = where + "." + parts + "[" + std::to_string(index++) + "]";
    require_object(part, inner);
    visit(part, inner);
  }
}

}  // namespace

// Fills a Data in the order of dependence: vocabulary, merges, components, added tokens.
class TokenizerBuilder {
 public:
  TokenizerBuilder(std::string_view name, TokenizerFile&& file)
      : name_(name), file_(std::move(file)), data_(std::make_unique<Tokenizer::Data>()) {}

  std::unique_ptr<Tokenizer::Data> build(std::string_view config_json) {
    const Json& root = file_.rest;
    check_keys(root, name_,
               {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                "post_processor", "decoder", "model"});
    if (text(root, "version", name_) != "1.0") {
      unsupported(name_, "version " + io::quote(text(root, "version", name_)));
    }
    for (const char* key : {"truncation", "padding"}) {
      if (member(root, key)) unsupported(name_, std::string(key));
    }
    read_model();
    read_normalizer();
    read_pre_tokenizer();
    read_post_processor();
    read_decoder();
    read_added_tokens(config_json);
    check_prefix();
    keep_special_out_of_bpe();
    measure();
    return std::move(data_);
  }

 private:
  std::string at(std::string_view path) const { return name_ + ": " + std::string(path); }

  void read_model() {
    const Json* model = member(file_.rest, "model");
    const std::string where = at("model");
    if (!model) malformed(name_, "has no model");
    require_object(*model, where);
    if (const std::string& type = text(*model, "type", where); type != "BPE") {
      unsupported(where, "type " + io::quote(type) + " (only BPE)");
    }
    check_keys(*model, where,
               {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
    if (const Json* dropout = member(*model, "dropout"); dropout && *dropout != 0) {
      unsupported(where, "dropout");
    }
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (member(*model, key) && !text(*model, key, where).empty()) unsupported(where, key);
    }
    if (flag(*model, "byte_fallback", where, false)) unsupported(where, "byte_fallback");
    data_->ignore_merges = flag(*model, "ignore_merges", where, false);
    if (!file_.has_vocabulary) malformed(where, "has no vocab");
    if (!file_.has_merges) malformed(where, "has no merges");
    read_vocabulary();
    read_merges();
  }

  void read_vocabulary() {
    // The words stand in the arena before and between the merges; both stay there.
    data_->arena = std::move(file_.arena);
    TokenId largest = -1;
    for (const auto& word : file_.vocabulary) largest = std::max(largest, word.id);
    data_->tokens.resize(static_cast<std::size_t>(largest + 1));
    data_->id_of_bytes.reserve(file_.vocabulary.size());
    for (const auto& word : file_.vocabulary) {
      const std::string_view bytes = view(word.offset, word.length);
      Tokenizer::Data::Token& token = data_->tokens[static_cast<std::size_t>(word.id)];
      if (token.exists) {
        malformed(at("model.vocab"), "two tokens have the id " + std::to_string(word.id));
      }
      const bool added =
          word.mapped ? data_->id_of_bytes.try_emplace(bytes, word.id).second
                      : data_->id_of_unmapped.try_emplace(std::string(bytes), word.id).second;
      if (!added) malformed(at("model.vocab"), "the token " + io::quote(bytes) + " stands twice");
      token = {.bytes = bytes, .exists = true};
    }
    for (int byte = 0; byte < 256; ++byte) {
      const char one = static_cast<char>(byte);
      const auto found = data_->id_of_bytes.find(std::string_view(&one, 1));
      if (found == data_->id_of_bytes.end()) {
        unsupported(at("model.vocab"),
                    "a vocabulary without the byte " + std::to_string(byte) + " (" +
                        io::quote(character_of_byte(static_cast<unsigned char>(byte))) + ")");
      }
      data_->bpe.id_of_byte[static_cast<std::size_t>(byte)] = found->second;
    }
  }

  // A pair that is listed twice has its last rank, as in the tokenizers library.
  void read_merges() {
    data_->bpe.rules.reserve(file_.merges.size());
    data_->bpe.rank_of.reserve(file_.merges.size());
    for (std::size_t rank = 0; rank < file_.merges.size(); ++rank) {
      const auto& merge = file_.merges[rank];
      TokenId ids[3];
      const std::string_view parts[3] = {view(merge.offset, merge.left),
                                         view(merge.offset + merge.left, merge.right),
                                         view(merge.offset, merge.left + merge.right)};
      for (int i = 0; i < 3; ++i) {
        const auto found = data_->id_of_bytes.find(parts[i]);
        if (found == data_->id_of_bytes.end()) {
          malformed(at("model.merges"), "entry " + std::to_string(rank) + " (" +
                                            io::quote(parts[0]) + ", " + io::quote(parts[1]) +
                                            "): " + io::quote(parts[i]) +
                                            " is not in the vocabulary");
        }
        ids[i] = found->second;
      }
      data_->bpe.rules.push_back({ids[0], ids[1], ids[2]});
      data_->bpe.rank_of.insert_or_assign(BpeModel::pair(ids[0], ids[1]),
                                          static_cast<std::uint32_t>(rank));
    }
  }

  void read_normalizer() {
    const Json* normalizer = member(file_.rest, "normalizer");
    if (!normalizer) return;
    each_component(*normalizer, at("normalizer"), "normalizers",
                   [&](const Json& part, const std::string& where) {
                     const std::string& type = text(part, "type", where);
                     if (type != "NFC")
                       unsupported(where, "type " + io::quote(type) + " (only NFC)");
                     check_keys(part, where, {"type"});
                     data_->nfc = true;
                   });
  }

  void read_pre_tokenizer() {
    const Json* pre = member(file_.rest, "pre_tokenizer");
    const std::string path = at("pre_tokenizer");
    if (!pre) unsupported(name_, "a file without pre_tokenizer");
    bool byte_level = false;
    each_component(*pre, path, "pretokenizers", [&](const Json& part, const std::string& where) {
      const std::string& type = text(part, "type", where);
      if (byte_level) unsupported(where, io::quote(type) + " after ByteLevel");
      SplitStep step;
      if (type == "Split") {
        step.regex = read_split(part, where);
      } else if (type == "ByteLevel") {
        byte_level = true;
        check_keys(part, where, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
        step.prefix_space = flag(part, "add_prefix_space", where, true);
        if (flag(part, "use_regex", where, true)) {
          step.regex.emplace(kByteLevelRegex, false, where);
        }
      } else {
        unsupported(where, "type " + io::quote(type) + " (only Split, ByteLevel, Sequence)");
      }
      if (step.prefix_space || step.regex) data_->steps.push_back(std::move(step));
      if (data_->steps.size() > kMostSteps) {
        unsupported(where, "more than " + std::to_string(kMostSteps) + " steps");
      }
    });
    if (!byte_level) unsupported(path, "a pre_tokenizer that does not end in ByteLevel");
  }

  static SplitRegex read_split(const Json& split, const std::string& where) {
    check_keys(split, where, {"type", "pattern", "behavior", "invert"});
    if (const std::string& behavior = text(split, "behavior", where); behavior != "Isolated") {
      unsupported(where, "behavior " + io::quote(behavior) + " (only Isolated)");
    }
    if (flag(split, "invert", where, false)) unsupported(where, "invert");
    const Json* pattern = member(split, "pattern");
    const std::string inner = where + ".pattern";
    if (!pattern) malformed(where, "has no pattern");
    require_object(*pattern, inner);
    check_keys(*pattern, inner, {"Regex", "String"});
    const bool literal = member(*pattern, "String") != nullptr;
    if (pattern->size() != 1) malformed(inner, "expected either Regex or String");
    const std::string& expression = text(*pattern, literal ? "String" : "Regex", inner);
    if (expression.empty()) malformed(inner, "is empty");
    return SplitRegex(expression, literal, inner);
  }

  // ByteLevel only trims offsets here, which ids do not show.
  void read_post_processor() {
    const Json* processor = member(file_.rest, "post_processor");
    if (!processor) return;
    each_component(*processor, at("post_processor"), "processors",
                   [&](const Json& part, const std::string& where) {
                     if (text(part, "type", where) == "TemplateProcessing") {
                       read_template(part, where);
                     } else {
                       require_byte_level(part, where);
                     }
                   });
  }

  // "single" is a list of {"SpecialToken": {"id": name}} and {"Sequence": {"id": "A"}}; the ids of
  // a name are in "special_tokens".
  void read_template(const Json& part, const std::string& where) {
    check_keys(part, where, {"type", "single", "pair", "special_tokens"});
    if (!data_->prefix.empty()) unsupported(where, "a second TemplateProcessing");
    const Json* names = member(part, "special_tokens");
    if (!names) malformed(where, "has no special_tokens");
    require_object(*names, where + ".special_tokens");
    bool text_seen = false;
    for (const Json& piece : list(part, "single", where)) {
      const std::string inner = where + ".single";
      require_object(piece, inner);
      check_keys(piece, inner, {"SpecialToken", "Sequence"});
      if (text_seen) unsupported(inner, "a piece behind the text");
      if (member(piece, "Sequence")) {
        text_seen = true;
        continue;
      }
      const Json* token = member(piece, "SpecialToken");
      if (!token) malformed(inner, "expected SpecialToken or Sequence");
      require_object(*token, inner + ".SpecialToken");
      add_prefix(*names, text(*token, "id", inner + ".SpecialToken"), where + ".special_tokens");
    }
    if (!text_seen) malformed(where + ".single", "has no Sequence");
  }

  void add_prefix(const Json& names, const std::string& name, const std::string& where) {
    const Json* entry = member(names, name);
    if (!entry) malformed(where, "has no entry " + io::quote(name));
    const std::string inner = where + "[" + io::quote(name) + "]";
    require_object(*entry, inner);
    for (const Json& id : list(*entry, "ids", inner)) {
      if (!id.is_number_unsigned() || id.get<std::uint64_t>() > kLargestId) {
        malformed(inner, "has an id that is none from 0 to " + std::to_string(kLargestId));
      }
      if (data_->prefix.size() == kMostPrefixTokens) {
        unsupported(where, "more than " + std::to_string(kMostPrefixTokens) + " tokens in front");
      }
      data_->prefix.push_back(id.get<TokenId>());
    }
  }

  // After all tokens are known.
  void check_prefix() {
    for (const TokenId id : data_->prefix) {
      const auto index = static_cast<std::size_t>(id);
      if (index >= data_->tokens.size() || !data_->tokens[index].exists) {
        malformed(at("post_processor"), "no token has the id " + std::to_string(id));
      }
    }
  }

  void read_decoder() {
    const Json* decoder = member(file_.rest, "decoder");
    if (!decoder) unsupported(name_, "a file without decoder");
    require_object(*decoder, at("decoder"));
    require_byte_level(*decoder, at("decoder"));
  }

  static void require_byte_level(const Json& part, const std::string& where) {
    const std::string& type = text(part, "type", where);
    if (type != "ByteLevel") unsupported(where, "type " + io::quote(type) + " (only ByteLevel)");
    check_keys(part, where, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
  }

  void read_added_tokens(std::string_view config_json) {
    if (member(file_.rest, "added_tokens")) {
      std::size_t index = 0;
      for (const Json& item : list(file_.rest, "added_tokens", name_)) {
        const std::string where = at("added_tokens[" + std::to_string(index++) + "]");
        require_object(item, where);
        check_keys(item, where,
                   {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
        const Json* id = member(item, "id");
        if (!id || !id->is_number_unsigned() || id->get<std::uint64_t>() > kLargestId) {
          malformed(where, "has no id from 0 to " + std::to_string(kLargestId));
        }
        add_token(item, id->get<TokenId>(), where, false);
      }
    }
    if (!config_json.empty()) read_config(config_json);
    auto& added = data_->added;
    std::sort(added.begin(), added.end(),
              [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
    for (const AddedToken& token : added) {
      data_->tokens[static_cast<std::size_t>(token.id)] = {
          .bytes = token.content, .exists = true, .special = token.special};
      if (!token.normalized) {
        data_->raw_matcher.add(token.content, token);
        continue;
      }
      const auto normal = data_->nfc ? nfc(token.content) : std::nullopt;
      data_->normalized_matcher.add(normal ? *normal : token.content, token);
    }
  }

  // A special token may stand in the vocabulary of BPE, too. Text must not become one by merging.
  void keep_special_out_of_bpe() {
    boost::unordered::erase_if(data_->bpe.rank_of, [&](const auto& pair_and_rank) {
      const TokenId made = data_->bpe.rules[pair_and_rank.second].id;
      return data_->tokens[static_cast<std::size_t>(made)].special;
    });
  }

  void measure() {
    for (const auto& token : data_->tokens) {
      data_->longest_token = std::max(data_->longest_token, token.bytes.size());
    }
    for (const auto& [bytes, id] : data_->id_of_bytes) {
      for (const char c : bytes) {
        std::size_t& longest = data_->longest_with[static_cast<unsigned char>(c)];
        longest = std::max(longest, bytes.size());
      }
    }
    data_->tokens_take_space =
        std::any_of(data_->added.begin(), data_->added.end(),
                    [](const AddedToken& token) { return token.lstrip || token.rstrip; });
    find_borders();
  }

  // Some text has both, and not side by side.
  static bool overlap(std::string_view a, std::string_view b) {
    for (std::size_t at = a.find(b[0]); at != a.npos; at = a.find(b[0], at + 1)) {
      const std::size_t common = std::min(a.size() - at, b.size());
      if (a.substr(at, common) == b.substr(0, common)) return true;
    }
    return false;
  }

  // A special token that is matched as it is written, whatever stands beside it: no other token can
  // begin before it and reach into it, none is longer, and none takes white space. A prefix of more
  // than one token depends on the text's second one, too.
  void find_borders() {
    constexpr std::size_t kMostCompared = 1024;
    const auto& added = data_->added;
    if (data_->tokens_take_space || data_->prefix.size() > 1 || added.size() > kMostCompared) {
      return;
    }
    for (const AddedToken& token : added) {
      const std::string_view own = token.content;
      const bool plain = token.special && !token.normalized && !token.single_word;
      data_->tokens[static_cast<std::size_t>(token.id)].border =
          plain && !overlap(own.substr(1), own) &&
          std::none_of(added.begin(), added.end(), [&](const AddedToken& other) {
            return other.id != token.id && !other.normalized && overlap(other.content, own);
          });
    }
  }

  void read_config(std::string_view config_json) {
    const std::string name = "tokenizer_config.json";
    const Json config = io::parse_json(config_json, name);
    require_object(config, name);
    const Json* decoder = member(config, "added_tokens_decoder");
    if (!decoder) return;
    require_object(*decoder, name + ": added_tokens_decoder");
    for (const auto& [key, item] : decoder->get_ref<const Json::object_t&>()) {
      const std::string where = name + ": added_tokens_decoder[" + io::quote(key) + "]";
      std::uint64_t id = 0;
      const auto end = std::from_chars(key.data(), key.data() + key.size(), id);
      if (key.empty() || end.ec != std::errc() || end.ptr != key.data() + key.size() ||
          id > kLargestId) {
        malformed(where, "is no id from 0 to " + std::to_string(kLargestId));
      }
      require_object(item, where);
      add_token(item, static_cast<TokenId>(id), where, true);
    }
  }

  // `again`: from the second list, which may repeat what the first says.
  void add_token(const Json& item, TokenId id, const std::string& where, bool again) {
    AddedToken token;
    token.id = id;
    token.content = text(item, "content", where);
    token.special = flag(item, "special", where, false);
    token.normalized = flag(item, "normalized", where, !token.special);
    token.lstrip = flag(item, "lstrip", where, false);
    token.rstrip = flag(item, "rstrip", where, false);
    token.single_word = flag(item, "single_word", where, false);
    if (token.content.empty()) malformed(where, "the content is empty");
    if (token.content.size() > kLongestAddedToken) {
      unsupported(where, "a content of " + std::to_string(token.content.size()) +
                             " bytes (at most " + std::to_string(kLongestAddedToken) + ")");
    }
    const auto same_id = by_id_.find(id);
    const auto same_content = by_content_.find(token.content);
    if (same_id != by_id_.end() || same_content != by_content_.end()) {
      const bool equal = same_id != by_id_.end() && same_content != by_content_.end() &&
                         same_content->second == id;
      if (again && equal) return;
      malformed(where, "the token " + io::quote(token.content) + " with id " + std::to_string(id) +
                           " collides with " +
                           (same_id != by_id_.end() ? io::quote(same_id->second) + " of the same id"
                                                    : "the same token with id " +
                                                          std::to_string(same_content->second)));
    }
    const auto bytes = bytes_of_token(token.content);
    if (bytes) {
      const auto found = data_->id_of_bytes.find(*bytes);
      if (found != data_->id_of_bytes.end() && found->second != id) {
        malformed(where, "the token " + io::quote(token.content) + " has the id " +
                             std::to_string(id) + ", but model.vocab gives it " +
                             std::to_string(found->second));
      }
    }
    if (data_->tokens.size() <= static_cast<std::size_t>(id)) {
      data_->tokens.resize(static_cast<std::size_t>(id) + 1);
    }
    Tokenizer::Data::Token& known = data_->tokens[static_cast<std::size_t>(id)];
    const bool shared = known.bytes == token.content || (bytes && known.bytes == *bytes);
    if (known.exists && !shared) {
      malformed(where, "the id " + std::to_string(id) + " belongs to " + io::quote(known.bytes) +
                           " in model.vocab");
    }
    by_id_.emplace(id, token.content);
    by_content_.emplace(token.content, id);
    data_->added.push_back(std::move(token));
  }

  std::string_view view(std::uint32_t offset, std::uint32_t length) const {
    return std::string_view(data_->arena).substr(offset, length);
  }

  std::string name_;
  TokenizerFile file_;
  std::unique_ptr<Tokenizer::Data> data_;
  boost::unordered_flat_map<TokenId, std::string> by_id_;  // added tokens so far
  boost::unordered_flat_map<std::string, TokenId> by_content_;
};

Tokenizer Tokenizer::parse(std::string_view tokenizer_json, std::string_view config_json,
                           std::string_view name) {
  TokenizerBuilder builder(name, read_tokenizer_file(tokenizer_json, name));
  return Tokenizer(builder.build(config_json));
}

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  std::error_code error;
  const bool folder = std::filesystem::is_directory(path, error);
  const std::filesystem::path file = folder ? path / "tokenizer.json" : path;
  const std::filesystem::path config = file.parent_path() / "tokenizer_config.json";
  const std::string text = io::read_file(file, "tokenizer", kLargestTokenizer);
  const std::string config_text =
      io::is_there(config) ? io::read_file(config, "tokenizer's configuration", kLargestTokenizer)
                           : "";
  return parse(text, config_text, file.string());
}

}  // namespace frt::models
