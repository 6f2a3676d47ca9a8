// SPDX-License-Identifier: Apache-2.0
// Encoding a text:
//
//   1. cut out the added tokens that are matched on the raw text;
//   2. normalise each part between them (NFC), cut out the added tokens matched on normalised text;
//   3. split each part between those into words (the pre-tokenizer's steps);
//   4. encode each word by BPE. Words repeat, so the ids of short ones are kept for the length of
//      the call, which needs no lock and forgets everything at the end.
//
// A word is encoded as soon as it is found, and a text with too many tokens is given up there.
// Before that, the bytes of each part are counted: n(b) bytes of value b, and m(b) bytes in the
// longest token that has such a byte, make at least sum n(b) / m(b) tokens, since each byte of a
// token of m bytes adds 1 / m or less.
//
// Decoding joins the bytes of all tokens and replaces what is no UTF-8 in the result.
#include <frt/io/utf8.hpp>
#include <frt/models/tokenizer.hpp>

#include <frt/error.hpp>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>

#include "byte_level.hpp"
#include "normalize.hpp"
#include "text.hpp"
#include "tokenizer_data.hpp"

namespace frt::models {
namespace {

constexpr std::size_t kLongestText = std::size_t{64} << 20;
constexpr std::size_t kLongestWord = std::size_t{1} << 20;  // bytes: BPE takes 28 for each
constexpr std::size_t kMostCachedWords = 1u << 17;          // per call
constexpr std::size_t kLongestCachedWord = 64;              // bytes

void require_text(std::string_view text) {
  if (text.size() > kLongestText) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "the text has " + bytes_text(text.size()) + ", at most " +
                                              std::to_string(kLongestText) +
                                              " can be encoded at once");
  }
  if (const auto offset = io::first_invalid_utf8(text)) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                "the text is not valid UTF-8 at byte " + std::to_string(*offset));
  }
}

void require_ranges(std::span<const TextRange> ranges, std::size_t size) {
  std::size_t last = 0;
  for (const TextRange& range : ranges) {
    if (range.begin < last || range.end < range.begin || range.end > size) {
      throw Error(FRT_ERR_INVALID_ARGUMENT,
                  "the range of plain text " + std::to_string(range.begin) + " .. " +
                      std::to_string(range.end) + " is out of order, or beyond the text's " +
                      bytes_text(size));
    }
    last = range.end;
  }
}

// The parts of `ranges` inside `part`, counted from its start; takes what ends there from `ranges`.
std::vector<TextRange> ranges_within(std::span<const TextRange>& ranges, TextRange part) {
  std::vector<TextRange> inside;
  while (!ranges.empty() && ranges.front().begin < part.end) {
    const TextRange& range = ranges.front();
    const std::size_t begin = std::max(range.begin, part.begin);
    const std::size_t end = std::min(range.end, part.end);
    if (begin < end) inside.push_back({begin - part.begin, end - part.begin});
    if (range.end > part.end) break;
    ranges = ranges.subspan(1);
  }
  return inside;
}

}  // namespace

// One call of encode(): the ids so far, and what the steps need.
class TextEncoder {
 public:
  TextEncoder(const Tokenizer::Data& data, std::size_t text_bytes, std::size_t max_tokens)
      : data_(data), text_bytes_(text_bytes), max_tokens_(max_tokens), bpe_(data.bpe) {
    // The largest text that could fit; every token would have to be the longest one.
    if (max_tokens_ == 0 || data_.tokens_take_space) return;
    const std::size_t shrinks = data_.nfc ? kNfcShrinks : 1;
    if (text_bytes_ / shrinks / data_.longest_token > max_tokens_) refuse();
  }

  void encode(std::string_view text, std::span<const TextRange> plain) {
    data_.raw_matcher.split(text, plain, [&](const Section& section) {
      if (section.id >= 0) return put(section.id);
      const auto begin = static_cast<std::size_t>(section.text.data() - text.data());
      encode_part(section.text, ranges_within(plain, {begin, begin + section.text.size()}));
    });
  }

  // The tokens of TemplateProcessing, unless the text begins with them.
  void put_prefix() {
    const std::vector<TokenId>& prefix = data_.prefix;
    if (ids_.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), ids_.begin())) {
      return;
    }
    require_room(prefix.size());
    ids_.insert(ids_.begin(), prefix.begin(), prefix.end());
  }

  std::vector<TokenId> take() { return std::move(ids_); }

  // Calls `visit` with the words of a normalised text.
  static void split(const Tokenizer::Data& data, std::string_view text, std::size_t step,
                    SplitRegex::Scratch& scratch,
                    const std::function<void(std::string_view)>& visit) {
    if (text.empty()) return;
    if (step == data.steps.size()) return visit(text);
    std::string spaced;
    if (data.steps[step].prefix_space && !text.starts_with(' ')) {
      spaced = " " + std::string(text);
      text = spaced;
    }
    const auto next = [&](std::string_view word) { split(data, word, step + 1, scratch, visit); };
    data.steps[step].regex ? data.steps[step].regex->split(text, scratch, next) : next(text);
  }

 private:
  struct Range {
    std::size_t first = 0, count = 0;  // in `cached_ids_`
  };

  // Text between tokens that are matched as they are written.
  void encode_part(std::string_view text, std::vector<TextRange> plain) {
    if (data_.normalized_matcher.empty()) plain.clear();
    std::optional<std::string> normal;
    if (data_.nfc) normal = nfc(text, plain);
    if (normal) text = *normal;
    data_.normalized_matcher.split(text, plain, [&](const Section& section) {
      if (section.id >= 0) return put(section.id);
      if (max_tokens_ > 0) require_room(least_tokens(section.text));
      split(data_, section.text, 0, scratch_, [&](std::string_view word) { encode_word(word); });
    });
  }

  std::size_t least_tokens(std::string_view text) const {
    // Of two tables in turn: a byte that follows itself need not wait for its last count.
    std::array<std::array<std::uint32_t, 256>, 2> count{};
    for (std::size_t i = 0; i < text.size(); ++i)
      ++count[i & 1][static_cast<unsigned char>(text[i])];
    std::size_t least = 0;
    for (std::size_t byte = 0; byte < count[0].size(); ++byte) {
      least += (count[0][byte] + count[1][byte]) / data_.longest_with[byte];
    }
    return least;
  }

  static void require_short(std::string_view word) {
    if (word.size() <= kLongestWord) return;
    throw Error(FRT_ERR_INVALID_ARGUMENT, "the text has a word of " + bytes_text(word.size()) +
                                              ", at most " + std::to_string(kLongestWord) +
                                              " can be encoded; put spaces or lines into it");
  }

  void encode_word(std::string_view word) {
    if (const auto seen = words_.find(word); seen != words_.end()) {
      require_room(seen->second.count);
      const TokenId* first = cached_ids_.data() + seen->second.first;
      ids_.insert(ids_.end(), first, first + seen->second.count);
      return;
    }
    require_short(word);
    const std::size_t start = ids_.size();
    if (const TokenId whole = whole_word(word); whole >= 0) {
      ids_.push_back(whole);
    } else {
      bpe_.encode(word, ids_);
    }
    require_room(0);
    if (words_.size() >= kMostCachedWords || word.size() > kLongestCachedWord) return;
    const Range range{cached_ids_.size(), ids_.size() - start};
    cached_ids_.insert(cached_ids_.end(), ids_.begin() + static_cast<std::ptrdiff_t>(start),
                       ids_.end());
    words_.emplace(keys_.emplace_back(word), range);
  }

  // The token that `word` is whatever the merges say, or -1.
  TokenId whole_word(std::string_view word) const {
    if (!data_.ignore_merges) return -1;
    const auto found = data_.id_of_bytes.find(word);
    if (found == data_.id_of_bytes.end()) return -1;
    return data_.tokens[static_cast<std::size_t>(found->second)].special ? -1 : found->second;
  }

  void put(TokenId id) {
    require_room(1);
    ids_.push_back(id);
  }

  void require_room(std::size_t more) const {
    if (max_tokens_ > 0 && ids_.size() + more > max_tokens_) refuse();
  }

  [[noreturn]] void refuse() const {
    throw Error(FRT_ERR_OUT_OF_RANGE, "the text of " + bytes_text(text_bytes_) + " has more than " +
                                          std::to_string(max_tokens_) +
                                          " tokens, the most allowed here; shorten it");
  }

  const Tokenizer::Data& data_;
  std::size_t text_bytes_, max_tokens_;
  BpeEncoder bpe_;
  SplitRegex::Scratch scratch_;
  std::vector<TokenId> ids_;
  std::deque<std::string> keys_;  // a deque keeps their addresses
  boost::unordered_flat_map<std::string_view, Range> words_;
  std::vector<TokenId> cached_ids_;
};

Tokenizer::Tokenizer(std::unique_ptr<const Data> data) : data_(std::move(data)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<TokenId> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  TextEncoder encoder(*data_, text.size(), options.max_tokens);
  require_text(text);
  require_ranges(options.plain, text.size());
  encoder.encode(text, options.plain);
  if (options.begins) encoder.put_prefix();
  return encoder.take();
}

std::vector<std::string> Tokenizer::pieces(std::string_view text) const {
  require_text(text);
  const auto normal = data_->nfc ? nfc(text) : std::nullopt;
  std::vector<std::string> words;
  SplitRegex::Scratch scratch;
  TextEncoder::split(*data_, normal ? *normal : text, 0, scratch,
                     [&](std::string_view word) { words.emplace_back(word); });
  return words;
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

bool Tokenizer::is_border(TokenId id) const {
  return has_token(id) && data_->tokens[static_cast<std::size_t>(id)].border;
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
  io::append_lossy(pending_, tokenizer_->token_bytes(id), text);
  return text;
}

std::string StreamDecoder::finish() {
  std::string text;
  io::finish_lossy(pending_, text);
  return text;
}

}  // namespace frt::models
