// SPDX-License-Identifier: Apache-2.0
#include "answer_parts/marker_scan.h"

#include <algorithm>

namespace inflight::answer_parts {

std::optional<std::string_view> MarkerScan::Add(char c, std::string& passed) {
  held_.push_back(c);
  while (!held_.empty()) {
    const auto begins = [this](std::string_view marker) { return marker.starts_with(held_); };
    if (const auto found = std::ranges::find_if(markers_, begins); found != markers_.end()) {
      if (found->size() != held_.size()) return std::nullopt;
      held_.clear();
      return *found;
    }
    passed.push_back(held_.front());
    held_.erase(0, 1);
  }
  return std::nullopt;
}

}  // namespace inflight::answer_parts
