// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "base/clock.h"
#include "protocol/tcp_listener/connection.h"

namespace inflight::tcp_listener {

void IoThread::Sweep() {
  if (is_stopping) return;
  sweep_timer.expires_after(sweep_interval);
  sweep_timer.async_wait([this](boost::system::error_code ec) {
    if (!ec) Sweep();
  });
  const auto now = SteadyNow();
  std::vector<std::shared_ptr<Connection>> due;
  for (const auto& connection : connections) {
    if (connection->IsDue(now)) due.push_back(connection);
  }
  for (const auto& connection : due) connection->OnDue(now);
  memory_look.Look(num_done);
}

void IoThread::StopSweep() {
  is_stopping = true;
  sweep_timer.cancel();
}

}  // namespace inflight::tcp_listener
