// SPDX-License-Identifier: Apache-2.0
// The loading of a server's models, which a signal ends.
#pragma once

#include <signal.h>

#include <functional>

#include "inflight/status.h"
#include "serving/server/create_server.h"

namespace inflight::tool {

// Loads the models on a thread of its own, while this one waits for `signals`, which are blocked.
// After a signal transfers are given up; a load that goes on all the same, such as of weights, ends
// with the process a little later: exit status 1, without destructors, after `tidy_up`.
Status LoadUntilSignal(serving::LoadableServer& server, const sigset_t& signals,
                       const std::function<void()>& tidy_up);

}  // namespace inflight::tool
