// SPDX-License-Identifier: Apache-2.0
#include "made_text.hpp"

#include <frt/io/utf8.hpp>

#include "check.hpp"

namespace frt::conformance {
namespace {

constexpr std::size_t kMostControls = 256;  // that are looked at

const Subject& with_checkpoint(const Subject& subject) {
  needs_checkpoint(subject);
  return subject;
}

}  // namespace

MadeText::MadeText(const Subject& subject)
    : made_(with_checkpoint(subject)),
      model_(made_->table(), made_->handle(), "checked", made_->sender()) {
  if (!model_.has_tokenizer()) throw Skip{"the model has no " FRT_EXT_TOKENIZER};
}

Reply MadeText::encode(const std::string& text, const frt_encode_params& params,
                       frt_status answer) const {
  return asked(
      sender(), "encode",
      [&](Reply& reply) {
        return model_.tokenizer().encode(model_.handle(), text.data(), text.size(), &params,
                                         Reply::take, &reply, &reply.error);
      },
      answer);
}

Reply MadeText::decode(const std::vector<int32_t>& ids, frt_status answer, uint32_t flags) const {
  return asked(
      sender(), "decode",
      [&](Reply& reply) {
        return model_.tokenizer().decode(model_.handle(), ids.data(), ids.size(), flags,
                                         Reply::take, &reply, &reply.error);
      },
      answer);
}

Reply MadeText::token_bytes(int32_t id, uint32_t& flags) const {
  return asked(sender(), "token_bytes", [&](Reply& reply) {
    return model_.tokenizer().token_bytes(model_.handle(), id, &flags, Reply::take, &reply,
                                          &reply.error);
  });
}

std::vector<MadeText::Control> MadeText::control_tokens() const {
  std::vector<Control> all;
  if (!model_.tokenizer().token_bytes) return all;
  const auto count = static_cast<int32_t>(model_.tokenizer().vocabulary(model_.handle()));
  for (int32_t id = 0; id < count && all.size() < kMostControls; ++id) {
    uint32_t flags = 0;
    const Reply reply = token_bytes(id, flags);
    check(reply.status, reply.error, sender() + ": token_bytes of id " + std::to_string(id));
    if ((flags & FRT_TOKEN_CONTROL) && !reply.sent.empty() && io::is_utf8(reply.sent)) {
      all.push_back({id, reply.sent});
    }
  }
  return all;
}

}  // namespace frt::conformance
