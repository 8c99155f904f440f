// SPDX-License-Identifier: Apache-2.0
// What an instance of a model does with a request. InstanceModel owns one per model version and
// calls it from its threads.
#pragma once

#include <memory>

#include "serving/core/request.h"
#include "serving/core/response_sender.h"

namespace inflight::serving {

class Executable {
 public:
  virtual ~Executable() = default;

  // Whether Execute returns at once, whatever it is given: then the thread that brings a request
  // runs it, on as many threads at once as bring some, and neither queue nor instances are used.
  virtual bool never_waits() const { return false; }

  // Answers `request`, now or later from another thread; the sender ends the request when the last
  // reference to it goes. What it throws fails the request, unless it has handed the sender on.
  // Inputs have the model's shapes, with the controls of a sequence behind them. Runs on as many
  // threads at once as the model has instances.
  virtual void Execute(const Request& request, const std::shared_ptr<ResponseSender>& sender) = 0;
};

}  // namespace inflight::serving
