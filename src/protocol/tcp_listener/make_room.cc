// SPDX-License-Identifier: Apache-2.0
#include "protocol/tcp_listener/make_room.h"

#include <map>
#include <vector>

namespace inflight::tcp_listener {
namespace {

// How little is lost with it, from 0 for a request that is on its way.
int Spareness(const Connection& connection) {
  return connection.IsIdle() ? 2 : connection.IsLingering() ? 1 : 0;
}

bool IsWaiting(const Connection& connection) {
  return connection.IsWaiting() || connection.IsLingering();
}

std::vector<Connection*> LookAtSome(IoThread& thread) {
  const auto& all = thread.connections;
  std::vector<Connection*> waiting;
  size_t num_looked = 0;
  for (size_t i = 0; i < all.bucket_count() && num_looked < kMaxLooked; ++i) {
    const size_t bucket = thread.next_bucket++ % all.bucket_count();
    for (auto it = all.begin(bucket); it != all.end(bucket); ++it, ++num_looked) {
      if (IsWaiting(**it)) waiting.push_back(it->get());
    }
  }
  return waiting;
}

}  // namespace

std::shared_ptr<Connection> Room::Waiting() const {
  auto found = connection.lock();
  const bool waits = found && IsWaiting(*found) && -found->last_request_ns() == std::get<2>(rank);
  return waits ? found : nullptr;
}

void FindRoom(IoThread& thread, size_t place, const boost::asio::ip::address& newcomer,
              Room& best) {
  const std::vector<Connection*> waiting = LookAtSome(thread);
  std::map<boost::asio::ip::address, int> counts;  // by client
  for (const Connection* connection : waiting) ++counts[connection->client()];
  for (Connection* connection : waiting) {
    const int count = counts[connection->client()];
    const int spareness = Spareness(*connection);
    const int of_newcomer = counts[newcomer];
    if (count < of_newcomer || (spareness == 0 && count == of_newcomer)) continue;
    const std::tuple rank(count, spareness, -connection->last_request_ns());
    if (best.IsFound() && rank <= best.rank) continue;
    best = {.connection = connection->weak_from_this(), .place = place, .rank = rank};
  }
}

}  // namespace inflight::tcp_listener
