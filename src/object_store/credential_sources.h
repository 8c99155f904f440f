// SPDX-License-Identifier: Apache-2.0
// What those who give credentials have in common.
#pragma once

#include <cstdint>
#include <ctime>

#include "object_store/http_message.h"

namespace inflight::object_store {

inline constexpr uint64_t kMaxCredentialBytes = 1 << 20;  // of a file
inline constexpr std::time_t kEarlySeconds = 300;         // what ends so soon is asked for again
// A service of this machine or its host. Elsewhere its address leads nowhere.
inline const SendOptions kMetadataService = {
    .connect_timeout_ms = 1000, .timeout_ms = 5000, .is_of_this_machine = true};

}  // namespace inflight::object_store
