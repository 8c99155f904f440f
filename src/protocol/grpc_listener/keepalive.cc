// SPDX-License-Identifier: Apache-2.0
#include "protocol/grpc_listener/keepalive.h"

#include <algorithm>

namespace inflight::grpc_listener {
namespace {

constexpr std::chrono::hours kIntervalWithoutCalls{
    2};  // where pings without calls are not permitted

}  // namespace

Keepalive::Keepalive(const KeepaliveOptions& options, Time now)
    : options_(options), last_received_(now), last_client_ping_(now) {
  if (options_.max_age) end_of_age_ = now + *options_.max_age;
  SetDue(now);
}

void Keepalive::OnDataSent() {
  num_pings_without_data_ = 0;
  num_strikes_ = 0;
  has_client_ping_ = false;
}

bool Keepalive::AllowsPing(Time now, bool has_calls) {
  const auto interval = has_calls || options_.permits_without_calls
                            ? std::chrono::nanoseconds(options_.min_ping_interval)
                            : std::chrono::nanoseconds(kIntervalWithoutCalls);
  const bool is_early = has_client_ping_ && now < last_client_ping_ + interval;
  last_client_ping_ = now;
  has_client_ping_ = true;
  if (is_early) ++num_strikes_;
  return options_.max_ping_strikes == 0 || num_strikes_ <= options_.max_ping_strikes;
}

Keepalive::Action Keepalive::Next(Time now, bool has_calls) {
  Action action = Action::kNone;
  const bool is_unanswered =
      is_ping_out_ && now >= pinged_at_ + options_.timeout && last_received_ < pinged_at_;
  if (now >= end_of_grace_ || is_unanswered) {
    action = Action::kClose;
  } else if (now >= end_of_age_) {
    end_of_age_ = Time::max();
    if (options_.max_age_grace) end_of_grace_ = now + *options_.max_age_grace;
    action = Action::kGoAway;
  } else if (!is_ping_out_ && now >= last_received_ + options_.time) {
    const bool may_ping = (has_calls || options_.permits_without_calls) &&
                          (options_.max_pings_without_data == 0 ||
                           num_pings_without_data_ < options_.max_pings_without_data);
    if (may_ping) {
      is_ping_out_ = true;
      pinged_at_ = now;
      ++num_pings_without_data_;
      action = Action::kPing;
    } else {
      last_received_ = now;  // looked at again after as long
    }
  } else if (is_ping_out_ && last_received_ >= pinged_at_) {
    is_ping_out_ = false;  // something came, which says as much as an answer
  }
  SetDue(now);
  return action;
}

void Keepalive::SetDue(Time now) {
  const Time ping = is_ping_out_ ? pinged_at_ + options_.timeout : last_received_ + options_.time;
  due_ = std::max(std::min({ping, end_of_age_, end_of_grace_}), now);
}

}  // namespace inflight::grpc_listener
