// SPDX-License-Identifier: Apache-2.0
#include "choice.hpp"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <frt/error.hpp>
#include <fstream>
#include <map>
#include <random>
#include <utility>

namespace frt::conformance {

bool is_full(const Choice& choice) {
  return choice.filter.empty() && choice.names.empty() && choice.parts == 1 &&
         choice.seconds == 0 && !choice.one_of_each;
}

void read_part(const std::string& text, Choice& choice) {
  int end = 0;
  if (std::sscanf(text.c_str(), "%d/%d%n", &choice.part, &choice.parts, &end) != 2 ||
      static_cast<std::size_t>(end) != text.size() || choice.part < 1 ||
      choice.part > choice.parts) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                "--part '" + text + "': expected I/N with I from 1 to N, e.g. 3/16");
  }
}

std::set<std::string> read_names(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Error(FRT_ERR_NOT_FOUND, "--cases: cannot read " + path);
  std::set<std::string> names;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) names.insert(line);
  }
  if (names.empty()) throw Error(FRT_ERR_INVALID_ARGUMENT, "--cases: no names in " + path);
  return names;
}

namespace {

Items one_of_each(const Items& all) {
  std::map<std::string, Items> kinds;
  for (const Item& item : all) {
    std::string kind;
    for (const char c : item.name) {
      if (!std::isdigit(static_cast<unsigned char>(c))) kind += c;
    }
    kinds[kind].push_back(item);
  }
  Items chosen;
  for (const auto& [kind, members] : kinds) chosen.push_back(members[members.size() / 2]);
  return chosen;
}

}  // namespace

Items chosen_cases(const std::vector<PluginCase>& of_plugin, const Suite& suite,
                   const Choice& choice) {
  Items all, chosen;
  for (const PluginCase& one : of_plugin) all.push_back({one.name, &one, nullptr});
  for (const Suite::Entry& one : suite.cases()) all.push_back({one.name, nullptr, &one});
  for (const std::string& name : choice.names) {
    if (std::none_of(all.begin(), all.end(), [&](const Item& one) { return one.name == name; })) {
      throw Error(FRT_ERR_NOT_FOUND,
                  "--cases: this plugin has no case `" + name + "`; --list shows the cases");
    }
  }
  std::erase_if(all, [&](const Item& item) {
    return item.name.find(choice.filter) == std::string::npos ||
           (!choice.names.empty() && !choice.names.contains(item.name));
  });
  if (choice.one_of_each) all = one_of_each(all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (static_cast<int>(i) % choice.parts == choice.part - 1) {
      chosen.insert(chosen.end(), choice.repeat, all[i]);
    }
  }
  if (choice.seconds > 0) {
    std::mt19937_64 random(choice.seed);
    for (std::size_t i = chosen.size(); i > 1; --i) std::swap(chosen[i - 1], chosen[random() % i]);
  }
  // The steps of a plugin's life, in their order whatever order the others have.
  const auto behind = std::stable_partition(
      chosen.begin(), chosen.end(), [](const Item& item) { return item.plugin != nullptr; });
  std::stable_sort(chosen.begin(), behind,
                   [](const Item& a, const Item& b) { return a.plugin < b.plugin; });
  return chosen;
}

}  // namespace frt::conformance
