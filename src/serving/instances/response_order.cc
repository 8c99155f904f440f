// SPDX-License-Identifier: Apache-2.0
#include "serving/instances/response_order.h"

#include <utility>

namespace inflight::serving {

ResponseHandler ResponseOrder::InOrder(ResponseHandler handler) {
  const std::lock_guard lock(mutex_);
  const Place place = entries_.insert(entries_.end(), {std::move(handler), {}});
  return [self = shared_from_this(), place](Response response) {
    self->Take(place, std::move(response));
  };
}

void ResponseOrder::Take(Place place, Response response) {
  std::unique_lock lock(mutex_);
  if (response.rejected) {
    const ResponseHandler handler = std::move(place->handler);
    entries_.erase(place);
    lock.unlock();
    handler(std::move(response));
    lock.lock();
  } else {
    place->responses.push_back(std::move(response));
  }
  GiveOutLocked(lock);
}

// Only one thread does: what others bring meanwhile, it finds.
void ResponseOrder::GiveOutLocked(std::unique_lock<std::mutex>& lock) {
  if (is_giving_out_) return;
  is_giving_out_ = true;
  while (!entries_.empty() && !entries_.front().responses.empty()) {
    Entry& first = entries_.front();
    Response response = std::move(first.responses.front());
    first.responses.pop_front();
    ResponseHandler handler = first.handler;
    if (response.is_final) entries_.pop_front();
    lock.unlock();
    handler(std::move(response));
    lock.lock();
  }
  is_giving_out_ = false;
}

}  // namespace inflight::serving
