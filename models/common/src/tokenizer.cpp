// SPDX-License-Identifier: Apache-2.0
// Encoding a text:
//
//   1. cut out the added tokens that are matched on the raw text;
//   2. normalise each part between them (NFC), cut out the added tokens matched on normalised text;
//   3. split each part between those into words (the pre-tokenizer's steps);
//   4. encode each word by BPE. Words repeat, so their ids are kept for the length of the call,
//   which
//      needs no lock and forgets everything at the end.
//
// Decoding joins the bytes of all tokens and replaces what is no UTF-8 in the result.
#include <frt/models/tokenizer.hpp>

#include <frt/error.hpp>

#include <deque>

#include "byte_level.hpp"
#include "normalize.hpp"
#include "text.hpp"
#include "tokenizer_data.hpp"
#include "utf8.hpp"

namespace frt::models {
namespace {

constexpr std::size_t kLongestText = std::size_t{1} << 30;
constexpr std::size_t kMostCachedWords = 1u << 17;  // per call

void require_text(std::string_view text) {
  if (text.size() > kLongestText) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "the text has " + bytes_text(text.size()) + ", at most " +
                                              std::to_string(kLongestText) +
                                              " can be encoded at once");
  }
  if (const auto offset = first_invalid_utf8(text)) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                "the text is not valid UTF-8 at byte " + std::to_string(*offset));
  }
}

// Encodes words, remembering those it has seen in this call.
class WordEncoder {
 public:
  WordEncoder(const BpeModel& model,
              const boost::unordered_flat_map<std::string_view, TokenId>* whole_words)
      : bpe_(model), whole_words_(whole_words) {}

  // `word` must live as long as the encoder.
  void encode(std::string_view word, std::vector<TokenId>& out) {
    if (const auto seen = words_.find(word); seen != words_.end()) {
      const auto first = ids_.begin() + seen->second.first;
      out.insert(out.end(), first, first + seen->second.count);
      return;
    }
    const std::size_t start = out.size();
    if (whole_words_ && whole_words_->contains(word)) {
      out.push_back(whole_words_->at(word));
    } else {
      bpe_.encode(word, out);
    }
    if (words_.size() >= kMostCachedWords) return;
    words_.emplace(word, Range{static_cast<std::ptrdiff_t>(ids_.size()),
                               static_cast<std::ptrdiff_t>(out.size() - start)});
    ids_.insert(ids_.end(), out.begin() + static_cast<std::ptrdiff_t>(start), out.end());
  }

 private:
  struct Range {
    std::ptrdiff_t first, count;  // in `ids_`
  };

  BpeEncoder bpe_;
  const boost::unordered_flat_map<std::string_view, TokenId>* whole_words_;  // or null
  boost::unordered_flat_map<std::string_view, Range> words_;
  std::vector<TokenId> ids_;
};

}  // namespace

// The steps between a normalised text and words. Owns what the words view.
struct SplitPipeline {
  const Tokenizer::Data& data;
  std::deque<std::string> texts;  // that had to be made; a deque keeps their addresses
  std::vector<std::string_view> words, next;

  std::string_view normalize(std::string_view text) {
    if (!data.nfc) return text;
    auto normal = nfc(text);
    return normal ? texts.emplace_back(std::move(*normal)) : text;
  }

  // -> words
  void split(std::string_view text) {
    words.clear();
    if (!text.empty()) words.push_back(text);
    for (const SplitStep& step : data.steps) {
      next.clear();
      for (std::string_view word : words) {
        if (step.prefix_space && !word.starts_with(' ')) {
          word = texts.emplace_back(" " + std::string(word));
        }
        if (step.regex) {
          step.regex->split(word, next);
        } else {
          next.push_back(word);
        }
      }
      std::swap(words, next);
    }
  }
};

Tokenizer::Tokenizer(std::unique_ptr<const Data> data) : data_(std::move(data)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<TokenId> Tokenizer::encode(std::string_view text, bool split_added) const {
  require_text(text);
  std::vector<TokenId> ids;
  SplitPipeline pipeline{*data_, {}, {}, {}};
  WordEncoder encoder(data_->bpe, data_->ignore_merges ? &data_->id_of_bytes : nullptr);
  std::vector<Section> outer, inner;
  const auto cut = [&](const AddedTokenMatcher& matcher, std::string_view part,
                       std::vector<Section>& sections) {
    sections.clear();
    if (split_added) {
      matcher.split(part, sections);
    } else if (!part.empty()) {
      sections.push_back({part, -1});
    }
  };
  cut(data_->raw_matcher, text, outer);
  for (const Section& section : outer) {
    if (section.id >= 0) {
      ids.push_back(section.id);
      continue;
    }
    cut(data_->normalized_matcher, pipeline.normalize(section.text), inner);
    for (const Section& part : inner) {
      if (part.id >= 0) {
        ids.push_back(part.id);
        continue;
      }
      pipeline.split(part.text);
      for (const std::string_view word : pipeline.words) encoder.encode(word, ids);
    }
  }
  return ids;
}

std::vector<std::string> Tokenizer::pieces(std::string_view text) const {
  require_text(text);
  SplitPipeline pipeline{*data_, {}, {}, {}};
  pipeline.split(pipeline.normalize(text));
  return {pipeline.words.begin(), pipeline.words.end()};
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  StreamDecoder decoder(*this, skip_special);
  std::string text;
  for (const TokenId id : ids) text += decoder.push(id);
  return text += decoder.finish();
}

std::optional<TokenId> Tokenizer::token_id(std::string_view token) const {
  for (const AddedToken& added : data_->added) {
    if (added.content == token) return added.id;
  }
  if (const auto bytes = bytes_of_token(token)) {
    const auto found = data_->id_of_bytes.find(*bytes);
    if (found != data_->id_of_bytes.end()) return found->second;
  }
  const auto found = data_->id_of_unmapped.find(std::string(token));
  if (found != data_->id_of_unmapped.end()) return found->second;
  return std::nullopt;
}

bool Tokenizer::has_token(TokenId id) const {
  return id >= 0 && static_cast<std::size_t>(id) < data_->tokens.size() &&
         data_->tokens[static_cast<std::size_t>(id)].exists;
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  if (!has_token(id)) {
    throw Error(FRT_ERR_OUT_OF_RANGE, "no token has the id " + std::to_string(id) +
                                          "; the tokenizer has ids from 0 to " +
                                          std::to_string(vocab_size() - 1));
  }
  return data_->tokens[static_cast<std::size_t>(id)].bytes;
}

bool Tokenizer::is_special(TokenId id) const {
  return has_token(id) && data_->tokens[static_cast<std::size_t>(id)].special;
}

std::size_t Tokenizer::vocab_size() const {
  return data_->tokens.size();
}

std::span<const AddedToken> Tokenizer::added_tokens() const {
  return data_->added;
}

std::string StreamDecoder::push(TokenId id) {
  std::string text;
  if (!tokenizer_->has_token(id) || (skip_special_ && tokenizer_->is_special(id))) return text;
  append_lossy(pending_, tokenizer_->token_bytes(id), text);
  return text;
}

std::string StreamDecoder::finish() {
  std::string text;
  finish_lossy(pending_, text);
  return text;
}

}  // namespace frt::models
