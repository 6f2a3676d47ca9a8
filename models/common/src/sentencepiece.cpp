// SPDX-License-Identifier: Apache-2.0
#include <sentencepiece_processor.h>

#include <frt/error.hpp>
#include <frt/models/sentencepiece.hpp>

namespace frt::models {

struct SentencePiece::Impl {
  sentencepiece::SentencePieceProcessor processor;
};

SentencePiece::SentencePiece(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SentencePiece::SentencePiece(SentencePiece&&) noexcept = default;
SentencePiece& SentencePiece::operator=(SentencePiece&&) noexcept = default;
SentencePiece::~SentencePiece() = default;

SentencePiece SentencePiece::load(const std::filesystem::path& path) {
  if (!std::filesystem::is_regular_file(path)) {
    throw Error(FRT_ERR_NOT_FOUND,
                path.string() + ": no such file, expected a SentencePiece model");
  }
  auto impl = std::make_unique<Impl>();
  const auto status = impl->processor.Load(path.string());
  if (!status.ok()) {
    throw Error(FRT_ERR_FORMAT,
                path.string() + ": no SentencePiece model (" + status.ToString() + ")");
  }
  return SentencePiece(std::move(impl));
}

std::vector<std::int32_t> SentencePiece::encode(std::string_view text) const {
  std::vector<int> ids;
  const auto status = impl_->processor.Encode({text.data(), text.size()}, &ids);
  if (!status.ok()) throw Error(FRT_ERR_INTERNAL, "SentencePiece: " + status.ToString());
  return {ids.begin(), ids.end()};
}

std::string SentencePiece::decode(std::span<const std::int32_t> ids) const {
  for (const std::int32_t id : ids) {
    if (id < 0 || static_cast<std::size_t>(id) >= vocab_size()) {
      throw Error(FRT_ERR_OUT_OF_RANGE, "token id " + std::to_string(id) + " is outside 0 .. " +
                                            std::to_string(vocab_size() - 1));
    }
  }
  std::string text;
  const auto status = impl_->processor.Decode(std::vector<int>(ids.begin(), ids.end()), &text);
  if (!status.ok()) throw Error(FRT_ERR_INTERNAL, "SentencePiece: " + status.ToString());
  return text;
}

std::size_t SentencePiece::vocab_size() const {
  return static_cast<std::size_t>(impl_->processor.GetPieceSize());
}

std::int32_t SentencePiece::bos() const {
  return impl_->processor.bos_id();
}

std::int32_t SentencePiece::piece_id(std::string_view piece) const {
  return impl_->processor.PieceToId({piece.data(), piece.size()});
}

}  // namespace frt::models
