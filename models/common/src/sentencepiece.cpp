// SPDX-License-Identifier: Apache-2.0
#include <sentencepiece_processor.h>

#include <algorithm>
#include <frt/error.hpp>
#include <frt/io/file.hpp>
#include <frt/io/utf8.hpp>
#include <frt/models/sentencepiece.hpp>

#include "text.hpp"

namespace frt::models {
namespace {

constexpr std::size_t kLongestText = std::size_t{64} << 20;

[[noreturn]] void refuse_length(std::string_view text, std::size_t max_tokens) {
  throw Error(FRT_ERR_OUT_OF_RANGE, "the text of " + bytes_text(text.size()) + " has more than " +
                                        std::to_string(max_tokens) +
                                        " tokens, the most allowed here; shorten it");
}

}  // namespace

namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{256} << 20;

}  // namespace

struct SentencePiece::Impl {
  sentencepiece::SentencePieceProcessor processor;
  std::size_t longest_piece = 1;  // bytes
};

SentencePiece::SentencePiece(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SentencePiece::SentencePiece(SentencePiece&&) noexcept = default;
SentencePiece& SentencePiece::operator=(SentencePiece&&) noexcept = default;
SentencePiece::~SentencePiece() = default;

SentencePiece SentencePiece::load(const std::filesystem::path& path) {
  const std::string model = io::read_file(path, "SentencePiece model", kMostBytes);
  auto impl = std::make_unique<Impl>();
  const auto status = impl->processor.LoadFromSerializedProto(model);
  if (!status.ok()) {
    throw Error(FRT_ERR_FORMAT,
                path.string() + ": no SentencePiece model (" + status.ToString() + ")");
  }
  for (int id = 0; id < impl->processor.GetPieceSize(); ++id) {
    impl->longest_piece = std::max(impl->longest_piece, impl->processor.IdToPiece(id).size());
  }
  return SentencePiece(std::move(impl));
}

std::vector<std::int32_t> SentencePiece::encode(std::string_view text,
                                                std::size_t max_tokens) const {
  if (text.size() > kLongestText) {
    throw Error(FRT_ERR_OUT_OF_RANGE, "the text has " + bytes_text(text.size()) + ", at most " +
                                          std::to_string(kLongestText) + " can be encoded at once");
  }
  const bool limited = max_tokens > 0;
  if (limited && text.size() / kBytesPerPiece / impl_->longest_piece > max_tokens) {
    refuse_length(text, max_tokens);
  }
  if (const auto offset = io::first_invalid_utf8(text)) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                "the text is not valid UTF-8 at byte " + std::to_string(*offset));
  }
  std::vector<int> ids;
  const auto status = impl_->processor.Encode({text.data(), text.size()}, &ids);
  if (!status.ok()) throw Error(FRT_ERR_INTERNAL, "SentencePiece: " + status.ToString());
  if (limited && ids.size() > max_tokens) refuse_length(text, max_tokens);
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
  const int id =
      impl_->processor.PieceToId({piece.data(), piece.size()});  // or the unknown piece's
  return impl_->processor.IdToPiece(id) == piece ? id : -1;
}

}  // namespace frt::models
