// SPDX-License-Identifier: Apache-2.0
// answer_grammar.hpp - what a call demands of its answer, as a grammar for the engine.
#pragma once

#include <memory>
#include <string>

#include "http/api/call.hpp"
#include "http/api/error.hpp"
#include "http/lm/served_model.hpp"
#include "lm/grammar/ticket.hpp"

namespace frt::host {

// Begins to compile it for `owner`; null where the answer may be anything. Throws ApiError naming
// the field for what this model, or any, cannot be held to.  [any]
std::shared_ptr<const GrammarTicket> answer_grammar(const ServedModel& served, const ApiCall& call,
                                                    const std::string& owner);

// What the compiler, or the engine, says against the grammar of `call`.  [any]
ApiError grammar_error(const ApiCall& call, const std::string& message);

}  // namespace frt::host
