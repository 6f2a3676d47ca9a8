// SPDX-License-Identifier: Apache-2.0
// frt/models/sentencepiece.hpp - a SentencePiece model file ("tokenizer.model"): text to ids and
// back, by the library of that name. Nothing is added around a text.
//
// Control pieces ("<bos>") are never read from a text, so it cannot write control tokens.
//
// FRT_ERR_NOT_FOUND (no such file), FRT_ERR_FORMAT (no SentencePiece model). Const member functions
// are [any].
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace frt::models {

class SentencePiece {
 public:
  static SentencePiece load(const std::filesystem::path& path);  // [setup]
  SentencePiece(SentencePiece&&) noexcept;
  SentencePiece& operator=(SentencePiece&&) noexcept;
  ~SentencePiece();

  // FRT_ERR_INVALID_ARGUMENT for text that is no UTF-8, with the byte offset; FRT_ERR_OUT_OF_RANGE
  // for more than `max_tokens` ids (0: no limit), early for a text of more than kBytesPerPiece
  // times the bytes that so many of the longest pieces have, and for 64 MiB.
  std::vector<std::int32_t> encode(std::string_view text, std::size_t max_tokens = 0) const;
  // Room for what a model's own normalisation takes away: extra spaces, compatibility forms.
  static constexpr std::size_t kBytesPerPiece = 4;
  // Control pieces are no text. FRT_ERR_OUT_OF_RANGE for an id that no piece has.
  std::string decode(std::span<const std::int32_t> ids) const;

  std::size_t vocab_size() const;
  std::int32_t bos() const;  // -1: none
  // The id of a piece by its name; -1 if there is none.
  std::int32_t piece_id(std::string_view piece) const;

 private:
  struct Impl;
  explicit SentencePiece(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace frt::models
