// SPDX-License-Identifier: Apache-2.0
// frt/models/tokenizer.hpp - text to token ids and back, as `tokenizer.json` defines it, for
// byte-level BPE: the same ids as the Hugging Face `tokenizers` library.
//
// What a file may ask for is either done or refused by name at load, never ignored:
//
//   added tokens     leftmost longest match on the raw text (`normalized: false`) or on the
//                    normalised text (`true`); lstrip, rstrip, single_word
//   normalizer       none, NFC, or a Sequence of these
//   pre_tokenizer    Split (Regex or String; Isolated), ByteLevel (add_prefix_space, use_regex),
//                    Sequence; the last step must be ByteLevel
//   model            BPE over the 256 byte symbols; merges as "a b" or ["a", "b"]; ignore_merges
//   post_processor   none, ByteLevel (which adds no token), TemplateProcessing with tokens in front
//                    of a text (what it does with two texts is not asked for), Sequence
//   decoder          ByteLevel
//
// Refused: other components, dropout, byte_fallback, continuing_subword_prefix,
// end_of_word_suffix, truncation, padding, a vocabulary without all bytes, added tokens of more
// than 256 bytes.
//
// Added tokens come from `tokenizer.json` and, where it lacks them, from `added_tokens_decoder` in
// `tokenizer_config.json`; `tokenizer.json` wins on flags.
//
// Errors: FRT_ERR_NOT_FOUND and FRT_ERR_IO (files), FRT_ERR_FORMAT (broken file),
// FRT_ERR_UNSUPPORTED (refused component), FRT_ERR_INVALID_ARGUMENT (text that is no UTF-8, with
// the byte offset), FRT_ERR_OUT_OF_RANGE (an id that no token has; more tokens than allowed).
// Threads: const member functions are [any]; a StreamDecoder belongs to one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace frt::models {

using TokenId = std::int32_t;

struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool special = false;      // dropped by skip_special
  bool normalized = false;   // matched on the normalised text
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it
  bool single_word = false;  // matches only between non-word characters
};

// Bytes [begin, end) of a text.
struct TextRange {
  std::size_t begin = 0, end = 0;
};

struct EncodeOptions {
  // In these bytes of the text, sorted and disjoint, added tokens are ordinary text: what comes
  // from outside must not be able to write control tokens. Words may reach across their borders.
  std::span<const TextRange> plain;
  std::size_t max_tokens = 0;  // FRT_ERR_OUT_OF_RANGE for more; 0: no limit
  // The text begins a sequence: the tokens of TemplateProcessing are put in front, unless the text
  // begins with them.
  bool begins = false;
};

class Tokenizer {
 public:
  // `path`: a folder with tokenizer.json (and perhaps tokenizer_config.json), or the path of a
  // tokenizer.json whose folder may hold the other.  [setup]
  static Tokenizer load(const std::filesystem::path& path);

  // From memory; `config_json` may be empty. `name` stands for the file in errors.  [setup]
  static Tokenizer parse(std::string_view tokenizer_json, std::string_view config_json = {},
                         std::string_view name = "tokenizer.json");

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // The ids of `text`: at most 64 MiB, and at most 1 MiB in a word (pieces()). A text that
  // `max_tokens` cannot hold is refused early: time and memory grow with the ids that are allowed,
  // not with the text.  [any]
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options = {}) const;

  // The text of `ids`: bytes of neighbouring tokens are joined before decoding, what is no UTF-8
  // becomes U+FFFD, one per maximal invalid part. An added token is its content, letters of Latin-1
  // included (which the library takes for bytes). `skip_special` leaves special tokens out. An id
  // that no token has, as the padding of an embedding table, is no text.  [any]
  std::string decode(std::span<const TokenId> ids, bool skip_special = false) const;

  // What pre-tokenisation makes of `text` where no added token is looked for: the words BPE works
  // on, as text.  [any]
  std::vector<std::string> pieces(std::string_view text) const;

  // The id of a token by its name: the content of an added token, or an entry of the vocabulary as
  // the file writes it ("Ġthe"). For the ids of a text use encode().  [any]
  std::optional<TokenId> token_id(std::string_view token) const;

  bool has_token(TokenId id) const;

  // The bytes `id` stands for, which need not be UTF-8; FRT_ERR_OUT_OF_RANGE.  [any]
  std::string_view token_bytes(TokenId id) const;

  bool is_special(TokenId id) const;  // false for ids that no token has

  // Outside EncodeOptions::plain its bytes always become it, and the texts in front of it and from
  // it on are encoded as though the other were not there.  [any]
  bool is_border(TokenId id) const;

  // Largest id + 1; ids in between may be unused.  [any]
  std::size_t vocab_size() const;

  // Sorted by id.  [any]
  std::span<const AddedToken> added_tokens() const;

 private:
  struct Data;
  friend class StreamDecoder;
  friend class TokenizerBuilder;
  friend class TextEncoder;
  explicit Tokenizer(std::unique_ptr<const Data> data);

  std::unique_ptr<const Data> data_;
};

// Decodes ids as they come and gives out whole characters only: what push() returned so far plus
// finish() always equals Tokenizer::decode() of the same ids. Keeps at most three bytes back.
// Borrows the tokenizer.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = false)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}

  // The text that is complete after `id`; often one character, sometimes nothing.
  std::string push(TokenId id);

  // The rest: U+FFFD if the last character was cut. The decoder is then as new.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::string pending_;  // the start of a character, valid so far
};

}  // namespace frt::models
