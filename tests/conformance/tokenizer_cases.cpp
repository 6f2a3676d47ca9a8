// SPDX-License-Identifier: Apache-2.0
// Cases of frt/tokenizer.h: texts to ids and back, ids one by one, ids and texts that cannot be,
// limits, and that what comes from outside writes no control token.
#include <frt/text.hpp>

#include <algorithm>
#include <climits>
#include <cstring>
#include <frt/io/utf8.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "broken_rule.hpp"
#include "check.hpp"
#include "made_text.hpp"
#include "plugin_cases.hpp"

namespace frt::conformance {
namespace {

// Words in ASCII, which every tokenizer of a language model spells.
const std::vector<std::string> kWords = {
    "Hello, world!",
    "a",
    "0123456789 1,234.5e-6",
    "for (int i = 0; i < 10; ++i) { total += f(i); }",
    "{\"json\": [1, null, \"text\"]}",
    "The quick brown fox jumps over the lazy dog.",
};
// What a tokenizer may lack tokens for, or normalise: composed letters (NFC, NFKC), so that only
// spaces are left to change.
const std::vector<std::string> kOtherTexts = {
    " a space before,  two between, one behind ",
    "line\nline\r\n\ttabbed\n\n",
    "na\u00efve caf\u00e9 \u00fcber Stra\u00dfe",
    "\u4f60\u597d\uff0c\u4e16\u754c",
    "\u0441\u043b\u043e\u0432\u043e \u05e9\u05dc\u05d5\u05dd \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "\U0001F600 \U0001F468\u200D\U0001F469\u200D\U0001F467 \U0001F1E9\U0001F1EA",
};

std::vector<std::string> all_texts() {
  std::vector<std::string> all = kWords;
  all.insert(all.end(), kOtherTexts.begin(), kOtherTexts.end());
  return all;
}

// A text as it stands in a message.
std::string in_quotes(std::string_view text) {
  constexpr std::size_t kMost = 60;
  std::string shown = "\"";
  for (const char c : text.substr(0, kMost)) shown += c == '\n' ? ' ' : c;
  return shown + (text.size() > kMost ? "...\"" : "\"");
}

uint32_t vocabulary(const MadeText& text) {
  return text.model().tokenizer().vocabulary(text.model().handle());
}

void require_ids(const MadeText& text, const std::vector<int32_t>& ids, const std::string& of) {
  const uint32_t count = vocabulary(text);
  for (const int32_t id : ids) {
    if (id >= 0 && static_cast<uint32_t>(id) < count) continue;
    fail("encode of " + in_quotes(of) + " gives the id " + std::to_string(id) +
         " of a vocabulary of " + std::to_string(count));
  }
}

void round_trip(const Subject& subject) {
  const MadeText text(subject);
  if (vocabulary(text) == 0) fail("vocabulary returns 0; it is the number of ids");
  std::string changed;
  const auto there_and_back = [&](const std::string& from) {
    const std::vector<int32_t> ids = text.plain_ids(from);
    require_ids(text, ids, from);
    return text.model().decode(ids);
  };
  for (const std::string& one : kWords) {
    const std::string back = there_and_back(one);
    if (back != one) fail(in_quotes(one) + " is encoded and decoded to " + in_quotes(back));
  }
  for (const std::string& one : kOtherTexts) {
    const std::string back = there_and_back(one);
    if (back == one) continue;
    const std::string again = there_and_back(back);
    if (again != back) {
      fail(in_quotes(one) + " is encoded and decoded to " + in_quotes(back) + ", and that to " +
           in_quotes(again) + "; what decode gives must encode to the same text");
    }
    if (changed.empty()) changed = in_quotes(one) + " comes back as " + in_quotes(back);
  }
  if (!changed.empty()) throw Warn{"a text is not spelled as it is: " + changed};
}

// Ids that come one by one, as a model gives them: pieces of whole characters, together what decode
// gives of all.
void streams(const Subject& subject) {
  const MadeText text(subject);
  const auto check_ids = [&](const std::vector<int32_t>& ids, uint32_t flags,
                             const std::string& what) {
    const std::string whole = text.model().decode(ids, flags);
    host::TextStream stream(text.model(), flags);
    for (int round = 0; round < 2; ++round) {
      std::string joined;
      const auto add = [&](const std::string& piece, const std::string& from) {
        if (!io::is_utf8(piece)) {
          fail(what + ": " + from + " gives a part of a character; keep it until it is complete");
        }
        joined += piece;
      };
      for (std::size_t i = 0; i < ids.size(); ++i) {
        add(stream.push(ids[i]),
            "stream_push of id " + std::to_string(ids[i]) + " (number " + std::to_string(i) + ")");
      }
      add(stream.flush(), "stream_flush");
      if (joined != whole) {
        fail(what + ": the stream gives " + in_quotes(joined) + ", decode " + in_quotes(whole) +
             (round > 0 ? "; a stream starts anew with stream_flush" : ""));
      }
    }
  };
  for (const std::string& one : all_texts()) {
    const std::vector<int32_t> ids = text.plain_ids(one);
    check_ids(ids, 0, in_quotes(one));
    // Ends within a character, where one has more than one token.
    for (std::size_t count = 1; count < ids.size(); ++count) {
      check_ids({ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count)}, 0,
                "the first " + std::to_string(count) + " ids of " + in_quotes(one));
    }
  }
  std::mt19937_64 random(subject.seed);
  const uint32_t count = vocabulary(text);
  for (int sequence = 0; sequence < 32; ++sequence) {
    std::vector<int32_t> ids(1 + random() % 24);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % count);
    for (const uint32_t flags : {0u, FRT_DECODE_SKIP_SPECIAL}) {
      check_ids(ids, flags, "random ids (sequence " + std::to_string(sequence) + ")");
    }
  }
}

// Ids of a hostile client, and texts that no token has.
void ids_that_are_none(const Subject& subject) {
  const MadeText text(subject);
  const frt_tokenizer_v1& table = text.model().tokenizer();
  for (const int32_t id : {-1, INT32_MIN, INT32_MAX}) {
    const std::string of = " of id " + std::to_string(id);
    const auto out_of_range = [&](const Reply& reply, const std::string& what) {
      require_refusal(reply, what, FRT_ERR_OUT_OF_RANGE);
    };
    out_of_range(text.decode({id}), "decode" + of);
    out_of_range(text.decode({0, id, 0}), "decode" + of + " among others");
    uint32_t flags = 0;
    if (table.token_bytes) out_of_range(text.token_bytes(id, flags), "token_bytes" + of);
    frt_text_stream stream = nullptr;
    frt_error error{};
    check(table.stream_create(text.model().handle(), 0, &stream, &error), error, text.sender());
    const Reply pushed = asked(text.sender(), "stream_push", [&](Reply& reply) {
      return table.stream_push(stream, id, Reply::take, &reply, &reply.error);
    });
    table.stream_destroy(stream);
    out_of_range(pushed, "stream_push" + of);
  }
  const int32_t found = text.model().token_id("no token has this text: \x01\x02\x03");
  if (found != -1) {
    fail("token_id of a text that is no token returns " + std::to_string(found) + ", not -1");
  }
  for (int32_t id = 0; table.token_bytes && static_cast<uint32_t>(id) < vocabulary(text); ++id) {
    uint32_t flags = 0;
    const Reply reply = text.token_bytes(id, flags);
    const std::string what = "token_bytes of id " + std::to_string(id);
    check(reply.status, reply.error, text.sender() + ": " + what);
    if (flags & ~(FRT_TOKEN_CONTROL | FRT_TOKEN_BORDER)) {
      fail(what + " gives the flags " + std::to_string(flags) +
           ", of which frt/tokenizer.h does not know all; set *flags to 0 first");
    }
  }
}

void limits(const Subject& subject) {
  const MadeText text(subject);
  frt_encode_params params{};
  params.struct_size = sizeof(params);
  params.flags = FRT_ENCODE_PLAIN | FRT_ENCODE_CONTINUES;
  std::string words;
  for (int i = 0; i < 200; ++i) words += "word " + std::to_string(i) + ", ";
  const std::vector<int32_t> all = text.plain_ids(words);
  params.max_tokens = all.size();
  if (text.model().encode(words, params) != all) {
    fail("encode gives other ids where max_tokens is just their number");
  }
  --params.max_tokens;
  const std::string of_words =
      "encode of " + std::to_string(all.size()) + " tokens with max_tokens one less";
  require_refusal(text.encode(words, params), of_words, FRT_ERR_OUT_OF_RANGE);
  params.max_tokens = 1;
  std::string long_text;
  while (long_text.size() < 1u << 20) long_text += words;
  require_refusal(text.encode(long_text, params), "encode of a long text with max_tokens 1",
                  FRT_ERR_OUT_OF_RANGE);
  params.max_tokens = 0;
  if (!text.model().encode("", params).empty()) {
    fail("encode of an empty text that continues gives ids; nothing is put in front of it");
  }
  // The offset of the first byte that is wrong is in the message.
  for (const std::string broken : {"abc\xff", "abc\xe4\xbd", "abc\xc0\xaf", "abc\xed\xa0\x80"}) {
    const Reply reply = text.encode(broken, params);
    require_refusal(reply, "encode of bytes that are not UTF-8", FRT_ERR_FORMAT);
    if (std::strstr(reply.error.message, "3") == nullptr) {
      fail(std::string("encode of a text whose byte 3 is not UTF-8 says \"") + reply.error.message +
           "\"; the message has the byte offset");
    }
  }
  const frt_text_range beyond{0, 4};
  params.flags = 0;
  params.plain = &beyond;
  params.plain_count = 1;
  // A tokenizer that needs no plain parts may leave them unread.
  const Reply odd = text.encode("abc", params);
  if (odd.status != FRT_OK) {
    require_refusal(odd, "encode with a plain part that ends behind the text");
  }
  params.plain = nullptr;
  params.plain_count = 0;
  const auto passes_on = [](const Reply& reply, const char* what) {
    if (reply.status == FRT_ERR_CANCELLED && reply.calls == 1) return;
    fail(std::string(what) + ": a sink that returns FRT_ERR_CANCELLED is called " +
         std::to_string(reply.calls) + " times, and the call returns " + status_name(reply.status) +
         "; stop and return the code of the sink (frt/base.h)");
  };
  passes_on(text.encode(words, params, FRT_ERR_CANCELLED), "encode");
  passes_on(text.decode(all, FRT_ERR_CANCELLED), "decode");
}

// Texts of users and tools end no turn.
void control_tokens(const Subject& subject) {
  const MadeText text(subject);
  const std::vector<MadeText::Control> controls = text.control_tokens();
  if (controls.empty()) throw Skip{"the tokenizer names no control tokens (token_bytes)"};
  const auto is_control = [&](int32_t id) {
    return std::any_of(controls.begin(), controls.end(),
                       [&](const MadeText::Control& one) { return one.id == id; });
  };
  for (const MadeText::Control& one : controls) {
    const int32_t found = text.model().token_id(one.text);
    if (found != one.id) {
      fail("token_id of " + in_quotes(one.text) + " returns " + std::to_string(found) +
           ", token_bytes says that it is id " + std::to_string(one.id));
    }
    const std::string around = "a " + one.text + " b";
    const frt_text_range middle{2, 2 + one.text.size()};
    frt_encode_params params{};
    params.struct_size = sizeof(params);
    params.flags = FRT_ENCODE_CONTINUES;
    params.plain = &middle;
    params.plain_count = 1;
    for (const std::vector<int32_t>& ids :
         {text.plain_ids(one.text), text.model().encode(around, params)}) {
      if (std::none_of(ids.begin(), ids.end(), is_control)) continue;
      fail("encode writes the control token " + in_quotes(one.text) +
           " for a plain part of a text; there added tokens are ordinary characters");
    }
  }
}

// A host of a later version must not be told that what it asked for was done.
void unknown_flags(const Subject& subject) {
  const MadeText text(subject);
  frt_encode_params params{};
  params.struct_size = sizeof(params);
  params.flags = kUnknownFlag;
  require_refusal(text.encode("a", params), "encode with a flag that no version has",
                  FRT_ERR_UNSUPPORTED);
  require_refusal(text.decode(text.plain_ids("a"), FRT_OK, kUnknownFlag),
                  "decode with a flag that no version has", FRT_ERR_UNSUPPORTED);
  frt_text_stream stream = nullptr;
  const Reply made = asked(text.sender(), "stream_create", [&](Reply& reply) {
    return text.model().tokenizer().stream_create(text.model().handle(), kUnknownFlag, &stream,
                                                  &reply.error);
  });
  if (made.status == FRT_OK) text.model().tokenizer().stream_destroy(stream);
  require_refusal(made, "stream_create with a flag that no version has", FRT_ERR_UNSUPPORTED);
}

}  // namespace

void add_tokenizer_cases(std::vector<PluginCase>& cases) {
  cases.push_back({"model tokenizer round trip", round_trip});
  cases.push_back({"model tokenizer streams", streams});
  cases.push_back({"model tokenizer ids", ids_that_are_none});
  cases.push_back({"model tokenizer limits", limits});
  cases.push_back({"model tokenizer control tokens", control_tokens});
  cases.push_back({"model tokenizer unknown flags", unknown_flags});
}

}  // namespace frt::conformance
