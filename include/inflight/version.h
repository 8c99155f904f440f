// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace inflight {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace inflight
