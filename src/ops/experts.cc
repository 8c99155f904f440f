// SPDX-License-Identifier: Apache-2.0
#include "ops/experts.h"

#include <fmt/format.h>

namespace inflight::ops {

Status CheckNumbers(const RouteParams& params) {
  const int num_shared = params.num_shared;
  if (num_shared < 0 || num_shared > kMaxExperts)
    return InvalidArgument(
        fmt::format("num_shared: got {}, needed [0, {}]", num_shared, kMaxExperts));
  const int num_routed = NumRouted(params);
  if (params.experts_per_token < 1 || params.experts_per_token > num_routed)
    return InvalidArgument(fmt::format("experts_per_token: got {}, needed [1, {}]",
                                       params.experts_per_token, num_routed));
  if (num_routed + num_shared > kMaxExperts)
    return InvalidArgument(fmt::format("logits: got {} experts and {} shared ones, needed up to {}",
                                       num_routed, num_shared, kMaxExperts));
  const HeldExperts held = HeldOf(params);
  if (params.held.has_value() != (params.routes.num_holders > 1))
    return InvalidArgument(fmt::format("routes.num_holders: got {}, needed {}",
                                       params.routes.num_holders,
                                       params.held ? "2 or more beside held" : "1 without held"));
  if (held.first < 0 || held.num_routed < 1 || held.first > num_routed - held.num_routed)
    return InvalidArgument(fmt::format("held: got experts [{}, {}), needed some of [0, {})",
                                       held.first, held.first + held.num_routed, num_routed));
  if (held.num_shared < 0 || held.num_shared > num_shared)
    return InvalidArgument(
        fmt::format("held: got {} shared experts, needed [0, {}]", held.num_shared, num_shared));
  if (params.routes.begins.num_elements() == held.size() + 1) return Status::Ok();
  return InvalidArgument(fmt::format("routes.begins: got {}, needed [{}]",
                                     params.routes.begins.ToString(), held.size() + 1));
}

}  // namespace inflight::ops
