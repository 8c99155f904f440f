// SPDX-License-Identifier: Apache-2.0
// Publishes one model's events of blocks over ZeroMQ (docs/kv-events.md).
//
// The step loop hands events over under a lock that is held for a moment only; a thread of the
// publisher, `kv-events`, makes batches of them and sends them. Where it falls behind by
// kMaxPending events, those are dropped, and the next batch says that the server holds nothing of
// what was told.
#pragma once

#include <memory>

#include "inflight/kv_events.h"
#include "inflight/status.h"
#include "kv_events/event_batch.h"

namespace inflight::kv_events {

inline constexpr size_t kMaxPending = 100'000;

// Binds the endpoints: kFailedPrecondition without libzmq, kInvalidArgument where an endpoint
// cannot be bound. The publisher says that all blocks are cleared when it begins, and when it ends.
Result<std::shared_ptr<KvObserver>> Publish(const KvEventsOptions& options,
                                            const MediumNames& media);

}  // namespace inflight::kv_events
