// SPDX-License-Identifier: Apache-2.0
#include "protocol/http_listener/query.h"

#include <algorithm>

#include "base/percent_encoding.h"
#include "base/status_macros.h"

namespace inflight::http_listener {

Status ForEachInQuery(
    std::string_view target,
    const std::function<Status(const std::string& name, const std::string& value)>& visit) {
  const size_t begin = target.find('?');
  if (begin == std::string_view::npos) return Status::Ok();
  std::string_view left = target.substr(begin + 1);
  while (!left.empty()) {
    const std::string_view one = left.substr(0, left.find('&'));
    left.remove_prefix(std::min(one.size() + 1, left.size()));
    if (one.empty()) continue;
    const size_t equals = std::min(one.find('='), one.size());
    const std::string_view value = one.substr(std::min(equals + 1, one.size()));
    RETURN_IF_ERROR(visit(PercentDecode(one.substr(0, equals), /*plus_is_blank=*/true),
                          PercentDecode(value, /*plus_is_blank=*/true)));
  }
  return Status::Ok();
}

}  // namespace inflight::http_listener
