// SPDX-License-Identifier: Apache-2.0
#include "tokenizer_file.hpp"

#include <frt/error.hpp>
#include <frt/io/json_sax.hpp>
#include <frt/io/utf8.hpp>

#include <limits>
#include <utility>

#include "byte_level.hpp"
#include "text.hpp"

namespace frt::models {
namespace {

constexpr io::JsonLimits kLimits{.bytes = kLargestTokenizer, .depth = 64};

class Reader {
 public:
  Reader(std::string_view name, TokenizerFile* file) : dom_(name, kLimits), file_(file) {}

  bool null() { return list_ == List::kNone ? dom_.null() : unexpected("null"); }
  bool boolean(bool v) { return list_ == List::kNone ? dom_.boolean(v) : unexpected("a boolean"); }
  bool number_integer(std::int64_t v) {
    return list_ == List::kNone ? dom_.number_integer(v) : unexpected("a negative number");
  }
  bool number_float(double v, const std::string& digits) {
    return list_ == List::kNone ? dom_.number_float(v, digits) : unexpected(digits);
  }
  bool binary(Json::binary_t&) { return false; }  // JSON text has none

  bool number_unsigned(std::uint64_t v) {
    if (list_ == List::kNone) return dom_.number_unsigned(v);
    if (list_ != List::kVocabulary) return unexpected("a number");
    if (v > static_cast<std::uint64_t>(kLargestId)) {
      fail("model.vocab: the id of " + io::quote(word_) + " is " + std::to_string(v) +
           ", at most " + std::to_string(kLargestId) + " is allowed");
    }
    bound(file_->vocabulary.size(), "model.vocab");
    const auto bytes = bytes_of_token(word_);
    const std::uint32_t offset = end();
    file_->arena += bytes ? *bytes : word_;
    file_->vocabulary.push_back(
        {offset, end() - offset, static_cast<TokenId>(v), bytes.has_value()});
    return true;
  }

  bool string(std::string& v) {
    switch (list_) {
      case List::kNone:
        return dom_.string(v);
      case List::kVocabulary:
        return unexpected("a string");
      case List::kMerges: {
        if (v.starts_with("#version")) return true;
        const std::size_t space = v.find(' ');
        if (space == v.npos || v.find(' ', space + 1) != v.npos) {
          fail("model.merges: entry " + std::to_string(file_->merges.size()) + " is " +
               io::quote(v) + ", expected two parts with a space between");
        }
        const std::string_view both = v;
        add_merge(both.substr(0, space), both.substr(space + 1));
        return true;
      }
      case List::kMergePair:
        if (++parts_ == 1) first_part_ = std::move(v);
        if (parts_ == 2) add_merge(first_part_, v);
        return true;
    }
    return false;
  }

  bool start_object(std::size_t count) {
    if (list_ != List::kNone) return unexpected("an object");
    if (at_model_key("vocab")) {
      file_->has_vocabulary = true;
      list_ = List::kVocabulary;
      return dom_.null();
    }
    return dom_.start_object(count);
  }

  bool key(std::string& v) {
    if (list_ == List::kVocabulary) {
      word_ = std::move(v);
      return true;
    }
    if (dom_.depth() == 1) root_key_ = v;
    if (dom_.depth() == 2) model_key_ = v;
    return dom_.key(v);
  }

  bool end_object() {
    if (list_ == List::kNone) return dom_.end_object();
    list_ = List::kNone;
    return true;
  }

  bool start_array(std::size_t count) {
    if (list_ == List::kMerges) {
      list_ = List::kMergePair;
      parts_ = 0;
      return true;
    }
    if (list_ != List::kNone) return unexpected("an array");
    if (at_model_key("merges")) {
      file_->has_merges = true;
      list_ = List::kMerges;
      return dom_.null();
    }
    return dom_.start_array(count);
  }

  bool end_array() {
    if (list_ == List::kNone) return dom_.end_array();
    if (list_ == List::kMergePair && parts_ != 2) {
      fail("model.merges: a pair after entry " + std::to_string(file_->merges.size()) + " has " +
           std::to_string(parts_) + " parts");
    }
    list_ = list_ == List::kMergePair ? List::kMerges : List::kNone;
    return true;
  }

  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::detail::exception& error) {
    return dom_.parse_error(position, token, error);
  }
  std::string_view name() const { return dom_.name(); }
  const io::JsonLimits& limits() const { return dom_.limits(); }
  std::size_t error_position() const { return dom_.error_position(); }
  const std::string& error_text() const { return dom_.error_text(); }
  Json take() { return dom_.take(); }

 private:
  enum class List { kNone, kVocabulary, kMerges, kMergePair };

  [[noreturn]] void fail(const std::string& message) const {
    throw Error(FRT_ERR_FORMAT, std::string(name()) + ": " + message);
  }

  bool unexpected(const std::string& what) const {
    if (list_ == List::kVocabulary)
      fail("model.vocab: " + io::quote(word_) + " is " + what + ", expected an id");
    fail("model.merges: entry " + std::to_string(file_->merges.size()) + " is " + what +
         ", expected \"a b\" or [\"a\", \"b\"]");
  }

  bool at_model_key(std::string_view key) const {
    return dom_.depth() == 2 && root_key_ == "model" && model_key_ == key;
  }

  std::uint32_t end() const {
    if (file_->arena.size() > std::numeric_limits<std::uint32_t>::max()) fail("is too large");
    return static_cast<std::uint32_t>(file_->arena.size());
  }

  // Each list has an entry per token at most, or it repeats itself.
  void bound(std::size_t entries, const char* list) const {
    if (entries <= static_cast<std::size_t>(kLargestId)) return;
    fail(std::string(list) + ": has more than the allowed " +
         std::to_string(std::size_t{kLargestId} + 1) + " entries");
  }

  void add_merge(std::string_view left, std::string_view right) {
    bound(file_->merges.size(), "model.merges");
    const std::uint32_t offset = end();
    std::uint32_t lengths[2];
    for (const bool second : {false, true}) {
      const std::string_view part = second ? right : left;
      const auto bytes = bytes_of_token(part);
      if (!bytes || bytes->empty()) {
        fail("model.merges: entry " + std::to_string(file_->merges.size()) + " has the part " +
             io::quote(part) + ", which stands for no bytes");
      }
      file_->arena += *bytes;
      lengths[second] = static_cast<std::uint32_t>(bytes->size());
    }
    file_->merges.push_back({offset, lengths[0], lengths[1]});
  }

  io::DomBuilder dom_;
  TokenizerFile* file_;
  List list_ = List::kNone;
  std::string root_key_, model_key_;
  std::string word_;        // the key in the vocabulary
  std::string first_part_;  // of a pair
  int parts_ = 0;
};

}  // namespace

TokenizerFile read_tokenizer_file(std::string_view text, std::string_view name) {
  TokenizerFile file;
  Reader reader(name, &file);
  io::run_sax(text, reader);
  file.rest = reader.take();
  if (!file.rest.is_object()) {
    throw Error(FRT_ERR_FORMAT, std::string(name) + ": is no JSON object");
  }
  return file;
}

}  // namespace frt::models
