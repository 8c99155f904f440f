// SPDX-License-Identifier: Apache-2.0
// libzmq, loaded when the first model publishes its blocks: a server that publishes none does not
// have it.
#pragma once

#include <zmq.h>

#include "inflight/status.h"

namespace inflight::kv_events {

struct ZmqCalls {
  decltype(&zmq_ctx_new) ctx_new = nullptr;
  decltype(&zmq_ctx_term) ctx_term = nullptr;
  decltype(&zmq_socket) socket = nullptr;
  decltype(&zmq_close) close = nullptr;
  decltype(&zmq_setsockopt) setsockopt = nullptr;
  decltype(&zmq_getsockopt) getsockopt = nullptr;
  decltype(&zmq_bind) bind = nullptr;
  decltype(&zmq_send) send = nullptr;
  decltype(&zmq_recv) recv = nullptr;
  decltype(&zmq_poll) poll = nullptr;
  decltype(&zmq_errno) last_errno = nullptr;
  decltype(&zmq_strerror) strerror = nullptr;
};

// Of the whole process, for good. kFailedPrecondition names the package that has it.
Result<const ZmqCalls*> LoadZmq();

}  // namespace inflight::kv_events
