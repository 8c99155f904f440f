// SPDX-License-Identifier: Apache-2.0
// When a connection is pinged, when a client pings too often, and when a connection is too old.
// Source: "gRPC Keepalive" (proposals A8 and A9 of the gRPC project).
#pragma once

#include <chrono>
#include <optional>

namespace inflight::grpc_listener {

struct KeepaliveOptions {
  using Ms = std::chrono::milliseconds;

  Ms time{7'200'000};  // without anything from the client, until it is pinged
  Ms timeout{20'000};  // of the answer
  bool permits_without_calls = false;
  int max_pings_without_data = 2;  // 0 = no bound
  Ms min_ping_interval{300'000};   // of the client, where nothing is sent to it
  int max_ping_strikes = 2;        // 0 = no bound
  std::optional<Ms> max_age;
  std::optional<Ms> max_age_grace;
};

// Threads: one at a time.
class Keepalive {
 public:
  using Time = std::chrono::steady_clock::time_point;

  enum class Action { kNone, kPing, kGoAway, kClose };

  Keepalive(const KeepaliveOptions& options, Time now);

  void OnReceived(Time now) { last_received_ = now; }
  void OnPingAnswered() { is_ping_out_ = false; }
  void OnDataSent();
  // False: the client pinged too often, and is to be sent away.
  bool AllowsPing(Time now, bool has_calls);

  Time due() const { return due_; }
  // At due() or later. kGoAway: no new calls; kClose: at once.
  Action Next(Time now, bool has_calls);

 private:
  void SetDue(Time now);

  const KeepaliveOptions options_;
  Time last_received_;
  Time pinged_at_{};
  bool is_ping_out_ = false;
  int num_pings_without_data_ = 0;
  Time last_client_ping_;
  bool has_client_ping_ = false;
  int num_strikes_ = 0;
  Time end_of_age_ = Time::max();
  Time end_of_grace_ = Time::max();
  Time due_;
};

}  // namespace inflight::grpc_listener
