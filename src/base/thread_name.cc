// SPDX-License-Identifier: Apache-2.0
#include "base/thread_name.h"

#include <pthread.h>

#include <string>

namespace inflight {

void NameThisThread(std::string_view name) {
  constexpr size_t kMaxBytes = 15;
  pthread_setname_np(pthread_self(), std::string(name.substr(0, kMaxBytes)).c_str());
}

}  // namespace inflight
