// SPDX-License-Identifier: Apache-2.0
// base.hpp - what the writers of all protocols share.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "http/api/call.hpp"
#include "http/api/protocol.hpp"
#include "http/api/wire/json_line.hpp"

namespace frt::host::api {

class ReplyBase : public ReplyWriter {
 public:
  // `call` outlives the writer.
  ReplyBase(const ApiCall& call, ReplyIdentity identity);

  void log_probability(uint32_t choice, ApiTokenProbability token) override;

 protected:
  const ApiCall& call() const noexcept { return call_; }
  const ReplyIdentity& identity() const noexcept { return identity_; }
  bool stream() const noexcept { return call_.stream; }
  // False for parts of a call that the client ruled out.
  bool admits(const ChatEvent& event) const noexcept;
  // The tool that the model calls `name`.
  ApiTool tool(const std::string& name) const;
  // "PREFIX" + id + what tells the choice and the number from others.
  std::string id(std::string_view prefix, uint32_t choice, std::size_t number) const;
  // What came for a choice since the last time.
  std::vector<ApiTokenProbability> take_probabilities(uint32_t choice);

 private:
  const ApiCall& call_;
  const ReplyIdentity identity_;
  std::map<uint32_t, std::vector<ApiTokenProbability>> probabilities_;
};

// The parts one after the other. Unlike operands of +, they are made in this order.  [any]
std::string joined(std::initializer_list<std::string> parts);

// Ended because something was full or over, not because the model had said all.  [any]
bool is_cut(Finish finish) noexcept;

// OpenAI's usage of chat and text completions.  [any]
Json completion_usage(const ApiUsage& usage);

// A probability's logarithm as JSON can say it.  [any]
double finite_logarithm(float value) noexcept;

// [{"token", "logprob", "bytes", "top_logprobs"}], of chat and Responses.  [any]
Json probability_list(const std::vector<ApiTokenProbability>& tokens);

}  // namespace frt::host::api
