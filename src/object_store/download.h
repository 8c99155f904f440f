// SPDX-License-Identifier: Apache-2.0
// Brings objects into the cache: several at a time, large ones in several ranges, each whole and
// checked before it has its name there.
#pragma once

#include <span>

#include "object_store/cache.h"
#include "object_store/store.h"

namespace inflight::object_store {

inline constexpr int kMaxListings = 3;  // by those who list and download, after a kAborted

// Those that the cache does not have. Older versions of them leave it. kAborted where the store has
// other objects meanwhile, kDataLoss where bytes are not those that the store's digest is about,
// kResourceExhausted where the disk has no room.
Status Download(Store& store, const Cache& cache, std::span<const Object> objects);

}  // namespace inflight::object_store
