// SPDX-License-Identifier: Apache-2.0
#include "launch/host_list.h"

#include "launch/number.h"

namespace inflight::launch {

std::optional<std::string> FirstHost(std::string_view list) {
  std::string host;
  bool in_brackets = false;
  bool past_first = false;  // of the brackets
  for (const char c : list) {
    if (c == '[' || c == ']') {
      if (in_brackets == (c == '[')) return std::nullopt;
      in_brackets = !in_brackets;
      past_first = false;
    } else if (in_brackets && (c == '-' || c == ',')) {
      past_first = true;
    } else if (!in_brackets && c == ',') {
      break;
    } else if (!past_first) {
      host += c;
    }
  }
  if (in_brackets || host.empty()) return std::nullopt;
  return host;
}

std::optional<int> TasksOfNode(std::string_view list, int node) {
  while (!list.empty()) {
    const size_t comma = list.find(',');
    std::string_view item = list.substr(0, comma);
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
    int repeat = 1;
    if (const size_t times = item.find("(x"); times != std::string_view::npos) {
      if (!item.ends_with(')')) return std::nullopt;
      const auto number = WholeNumber(item.substr(times + 2, item.size() - times - 3));
      if (!number) return std::nullopt;
      repeat = *number;
      item = item.substr(0, times);
    }
    const auto tasks = WholeNumber(item);
    if (!tasks) return std::nullopt;
    if (node < repeat) return *tasks;
    node -= repeat;
  }
  return std::nullopt;
}

}  // namespace inflight::launch
