// SPDX-License-Identifier: Apache-2.0
// choice.hpp - which cases of a plugin a run takes, and how it runs them.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "check.hpp"
#include "plugin_cases.hpp"

namespace frt::conformance {

struct Choice {
  std::string filter;           // text in the name
  std::set<std::string> names;  // only these, if any
  int part = 1, parts = 1;   // of the cases that the filter leaves, each parts-th from this one on
  double seconds = 0;        // no case begins later; 0: all of them
  bool one_of_each = false;  // of cases whose names differ in numbers only the middle one
  bool once = false;         // eagerly alone
  bool strict = false;       // an operator that is offered supports all arguments
  Rounding activations = Rounding::kNone;  // the backend rounds x so, and must
  bool all_variants = false;  // every offered kernel variant must run, whatever the cases
  int repeat = 1;             // so often each
  uint64_t seed = 1;
  double patience = 300;    // seconds that a case may take; 0: any time
  bool in_process = false;  // no children
  uint32_t threads = 0;     // of the reference
};

// Whether the choice leaves no case out.
bool is_full(const Choice& choice);
// "3/16". Throws FRT_ERR_INVALID_ARGUMENT.
void read_part(const std::string& text, Choice& choice);
// The names in a file, one a line. Throws FRT_ERR_NOT_FOUND, FRT_ERR_INVALID_ARGUMENT.
std::set<std::string> read_names(const std::string& path);

// One case, of one of two kinds.
struct Item {
  std::string name;
  const PluginCase* plugin = nullptr;
  const Suite::Entry* entry = nullptr;
};
using Items = std::vector<Item>;

// In the order in which they run: those of the plugin come first, in their own. Throws
// FRT_ERR_NOT_FOUND for a name that no case has.
Items chosen_cases(const std::vector<PluginCase>& of_plugin, const Suite& suite,
                   const Choice& choice);

}  // namespace frt::conformance
