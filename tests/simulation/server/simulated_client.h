// SPDX-License-Identifier: Apache-2.0
// A client with one connection: asks, waits, and says how each of its requests ended.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "simulation/server/asked_request.h"
#include "simulation/server/wire.h"

namespace inflight::testing {

enum class End : uint8_t {
  kRight,    // answered as alone
  kRefused,  // an error that a client may be told
  kWrong,    // another answer, or more than one
  kClosed,   // the server closed the connection without an answer
  kGone,     // the client itself went, or cancelled it
};

class SimulatedClient {
 public:
  using EndSink = std::function<void(const AskedRequest&, End)>;

  virtual ~SimulatedClient() = default;

  // It can ask one more at this time.
  virtual bool MayAsk() const = 0;
  virtual void Ask(AskedRequest asked) = 0;
  // Requests that it waits for.
  virtual std::vector<uint64_t> Pending() const = 0;
  virtual bool IsWaiting() const = 0;  // for any
  virtual void PollOnce() = 0;
  // What waits for an answer will get none; the wire has been cut, or a call cancelled.
  virtual void GiveUp() = 0;
  // Nothing more can be asked over it.
  virtual bool IsOver() const = 0;
  // Cancels one of what it waits for without going: its seed, 0 where it cannot.
  virtual uint64_t CancelOne() { return 0; }

  Wire& wire() { return wire_; }

 protected:
  Wire wire_;
};

std::unique_ptr<SimulatedClient> MakeHttpClient(const Judge& judge,
                                                SimulatedClient::EndSink on_end);
// `streams`: all requests over one ModelStreamInfer call, else each in a ModelInfer call.
std::unique_ptr<SimulatedClient> MakeGrpcClient(const Judge& judge, SimulatedClient::EndSink on_end,
                                                bool streams);

}  // namespace inflight::testing
