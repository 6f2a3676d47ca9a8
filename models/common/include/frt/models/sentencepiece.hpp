// SPDX-License-Identifier: Apache-2.0
// frt/models/sentencepiece.hpp - a SentencePiece model file ("tokenizer.model"): text to ids and
// back, by the library of that name. Nothing is added around a text.
//
// FRT_ERR_NOT_FOUND (no such file), FRT_ERR_FORMAT (no SentencePiece model). Const member functions
// are [any].
#pragma once

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

  std::vector<std::int32_t> encode(std::string_view text) const;
  // Control pieces are no text. FRT_ERR_OUT_OF_RANGE for an id that no piece has.
  std::string decode(std::span<const std::int32_t> ids) const;

  std::size_t vocab_size() const;
  std::int32_t bos() const;  // -1: none
  // The id of a piece by its name; that of the unknown piece if there is none.
  std::int32_t piece_id(std::string_view piece) const;

 private:
  struct Impl;
  explicit SentencePiece(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace frt::models
