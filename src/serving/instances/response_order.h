// SPDX-License-Identifier: Apache-2.0
// Gives the responses of requests out in the order in which the requests came, whichever is ready
// first: those of a request follow when all before it have ended.
//
// Threads: all methods are thread-safe; handlers run on the threads that bring responses, one at a
// time.
#pragma once

#include <deque>
#include <list>
#include <memory>
#include <mutex>

#include "serving/core/request.h"

namespace inflight::serving {

class ResponseOrder : public std::enable_shared_from_this<ResponseOrder> {
 public:
  // The place of a request is that of this call. One that is refused when it comes has none.
  ResponseHandler InOrder(ResponseHandler handler);

 private:
  struct Entry {
    ResponseHandler handler;
    std::deque<Response> responses;  // not given out yet
  };
  using Place = std::list<Entry>::iterator;

  void Take(Place place, Response response);
  void GiveOutLocked(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::list<Entry> entries_;
  bool is_giving_out_ = false;
};

}  // namespace inflight::serving
