// SPDX-License-Identifier: Apache-2.0
// A listening port, and those who have connected to it and not said who they are yet. Whoever says
// anything but a Hello is turned away, and so is who takes longer than five seconds for it, or is
// the oldest of more than 64: a stranger holds up nobody.
#pragma once

#include <netinet/in.h>

#include <list>
#include <optional>
#include <span>
#include <utility>

#include "base/descriptor.h"
#include "comm/tcp.h"
#include "comm/wire.h"
#include "inflight/status.h"

namespace inflight::comm {

struct Arrival {
  Descriptor socket;
  Hello hello;  // its magic is right; nothing else has been looked at
  sockaddr_in6 from;
};

class Door {
 public:
  // `listener` of Listen.
  explicit Door(Descriptor listener) : listener_(std::move(listener)) {}

  int port() const { return PortOf(listener_); }

  // The next who has said Hello. None when one of `others` has something to read or is closed, or
  // at the deadline.
  Result<std::optional<Arrival>> Wait(std::span<const int> others, Deadline deadline);

 private:
  struct Visitor {
    Descriptor socket;
    Deadline patience;
    size_t bytes = 0;  // that it has said
    Hello hello;
  };
  enum class Said : uint8_t { kMore, kAll, kWrong };

  static Said Hear(Visitor& visitor);
  void LetIn();
  std::optional<Arrival> HearAll();

  Descriptor listener_;
  std::list<Visitor> visitors_;  // the oldest first
};

}  // namespace inflight::comm
